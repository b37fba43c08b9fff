use super::*;

const MIB: usize = 1024 * 1024;

fn single(start: usize, size: usize) -> Span {
    Span { start, end: start + size, stride: size, guard: 4096 }
}

#[test]
fn an_address_of_a_span_finds_its_slot_and_others_do_not() {
    let registry = Registry::new();
    registry
        .insert(Span {
            start: 10 * MIB,
            end: 10 * MIB + 3 * 320 * 1024 + 100,
            stride: 320 * 1024,
            guard: 64 * 1024,
        })
        .unwrap();
    let second = 10 * MIB + 320 * 1024;
    let slot = Slot { guard: second, low: second + 64 * 1024, high: second + 320 * 1024 };
    assert_eq!(registry.find(second), Some(slot));
    assert_eq!(registry.find(slot.low), Some(slot));
    assert_eq!(registry.find(slot.high - 1), Some(slot));
    assert_eq!(registry.find_unlocked(slot.high - 1), Some(slot));
    assert_ne!(registry.find(slot.high), Some(slot));
    assert_eq!(registry.find(10 * MIB - 1), None);
    // The piece at the end is too small for a slot.
    assert_eq!(registry.find(10 * MIB + 3 * 320 * 1024 + 50), None);
}

#[test]
fn a_span_over_many_chunks_is_found_in_each_and_gone_from_each() {
    let registry = Registry::new();
    let span = Span { start: 3 * MIB, end: 1003 * MIB, stride: MIB, guard: 65536 };
    registry.insert(span).unwrap();
    for mib in 3..1003 {
        assert_eq!(registry.find(mib * MIB + 5).map(|slot| slot.guard), Some(mib * MIB));
    }
    registry.remove(3 * MIB);
    for mib in 3..1003 {
        assert_eq!(registry.find(mib * MIB + 5), None);
    }
}

#[test]
fn removing_one_of_a_bucket_keeps_the_others() {
    let registry = Registry::new();
    // All in one bucket: chunks that are BUCKETS apart, and neighbours inside one chunk.
    let spans: Vec<Span> = (0..4)
        .flat_map(|far| {
            (0..4).map(move |near| single(far * BUCKETS * CHUNK + near * 65536 + CHUNK, 65536))
        })
        .collect();
    for &span in &spans {
        registry.insert(span).unwrap();
    }
    for (gone, span) in spans.iter().enumerate() {
        registry.remove(span.start);
        for (index, span) in spans.iter().enumerate() {
            assert_eq!(registry.find(span.start + 9).is_some(), index > gone);
        }
    }
}

#[test]
fn removing_an_absent_span_does_nothing() {
    let registry = Registry::new();
    registry.remove(12345);
    registry.insert(single(MIB, 65536)).unwrap();
    registry.remove(MIB - 65536);
    assert!(registry.find(MIB).is_some());
}

#[test]
fn readers_without_the_lock_find_a_span_that_stays_while_writers_change_others() {
    let registry = Registry::new();
    let stays = single(CHUNK, 65536);
    registry.insert(stays).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (registry, stop) = (&registry, &stop);
            scope.spawn(move || {
                for round in 0..20_000 {
                    let start = CHUNK * (1 + BUCKETS * (round % 3)) + 65536 * (1 + writer);
                    registry.insert(single(start, 65536)).unwrap();
                    registry.remove(start);
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
        while !stop.load(Ordering::Relaxed) {
            let slot = registry.find_unlocked(CHUNK + 100).expect("it never left");
            assert_eq!(slot.guard, CHUNK);
        }
    });
}
