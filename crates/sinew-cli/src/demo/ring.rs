//! Fibers that resume each other, without a scheduler.

use sinew_context::FiberContext;
use std::cell::Cell;
use std::io::{self, Write};
use std::rc::Rc;
use std::time::Instant;

const MEMBERS: usize = 3;

/// The suspended members of the ring, and `main`, to which the ring returns at the end.
struct Ring {
    members: [Cell<Option<FiberContext>>; MEMBERS],
    main: Cell<Option<FiberContext>>,
    switches: Cell<u64>,
    shown: Cell<usize>,
}

pub(super) fn show(out: &mut impl Write, rounds: u32) -> io::Result<()> {
    writeln!(out, "== a ring: {MEMBERS} fibers, each resuming the next, {rounds} times round")?;
    let ring = Rc::new(Ring {
        members: Default::default(),
        main: Cell::new(None),
        switches: Cell::new(0),
        shown: Cell::new(0),
    });
    for me in 0..MEMBERS {
        let fiber = FiberContext::new({
            let ring = ring.clone();
            move |from| member(&ring, me, from, rounds)
        })?;
        ring.members[me].set(Some(fiber));
    }
    let start = Instant::now();
    let first = ring.members[0].take().expect("the first member is suspended");
    assert!(first.resume().is_none(), "the first member ends the ring");
    let time = start.elapsed();
    let order: Vec<String> = (0..ring.shown.get()).map(|n| (n % MEMBERS + 1).to_string()).collect();
    writeln!(out, "order: {} ...", order.join(" "))?;
    let switches = ring.switches.get();
    let each = time.as_nanos() as f64 / switches as f64;
    writeln!(out, "{switches} switches in {time:.1?}: {each:.1} ns each\n")
}

/// One member of the ring: it resumes the next member, and stores the fiber that resumed it.
fn member(ring: &Rc<Ring>, me: usize, from: FiberContext, rounds: u32) -> FiberContext {
    let previous = (me + MEMBERS - 1) % MEMBERS;
    if me == 0 {
        ring.main.set(Some(from));
    } else {
        ring.members[previous].set(Some(from));
    }
    for round in 0.. {
        if me == 0 && round == rounds {
            break;
        }
        if round < 2 {
            ring.shown.set(ring.shown.get() + 1);
        }
        ring.switches.set(ring.switches.get() + 1);
        let next = ring.members[(me + 1) % MEMBERS].take().expect("the next member is suspended");
        ring.members[previous].set(next.resume());
    }
    // The other members are suspended and hold the ring. Drop them here, which unwinds them.
    for place in &ring.members {
        drop(place.take());
    }
    ring.main.take().expect("main is suspended")
}
