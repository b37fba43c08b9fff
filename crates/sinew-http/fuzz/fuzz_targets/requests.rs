//! Checks that the parsers understand bytes alike, however the bytes are cut into pieces.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sinew_http::fuzzing::{Event, requests};

fuzz_target!(|input: &[u8]| {
    // The first bytes seed the cuts of the others.
    let Some((seed, bytes)) = input.split_first_chunk() else { return };
    let seed = u64::from_le_bytes(*seed);
    let whole = requests(bytes, &mut std::iter::empty());
    // Pieces of a few bytes each; the seed decides how long they may be.
    let mut state = seed | 1;
    let longest = 1 + seed % 64;
    let mut cuts = std::iter::from_fn(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        Some((state % longest) as usize + 1)
    });
    let cut = requests(bytes, &mut cuts);
    let end = |events: &[Event]| events.last() == Some(&Event::Refused);
    assert_eq!(end(&whole), end(&cut), "{whole:?} {cut:?}");
    if end(&whole) {
        // A refusal may come a little earlier or later within a body.
        let heads = |events: &[Event]| {
            events.iter().filter(|event| matches!(event, Event::Head(_))).count()
        };
        assert_eq!(heads(&whole), heads(&cut));
        return;
    }
    assert_eq!(whole, cut);
});
