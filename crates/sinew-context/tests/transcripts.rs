//! The examples of P0876, the C++ proposal for a first-class fiber, with their outputs.

use sinew_context::stack::ProtectedFixedSize;
use sinew_context::{Consumer, FiberContext, scope};
use sinew_testkit::Log;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

type Place = Rc<Cell<Option<FiberContext>>>;

/// Three fibers in a ring. Each resumes the next, and stores the fiber that switches back in the
/// place of the previous one.
#[test]
fn ring_prints_1_2_3_1_2_3() {
    let out = Log::new();
    let (f1, f2, f3): (Place, Place, Place) = Default::default();
    let main: Place = Place::default();
    let rounds = 3;

    let ring = |name: &'static str, me: &Place, next: &Place, previous: &Place| {
        let (next, previous, out, main) =
            (next.clone(), previous.clone(), out.clone(), main.clone());
        let fiber = FiberContext::new(move |from| {
            // `main` starts the first fiber; each other fiber is started by the one before it.
            if name == "1" {
                main.set(Some(from))
            } else {
                previous.set(Some(from))
            }
            for round in 0.. {
                if name == "1" && round == rounds {
                    break;
                }
                out.line(name);
                previous.set(next.take().expect("the next one waits").resume());
            }
            main.take().expect("main waits")
        });
        me.set(Some(fiber.unwrap()));
    };
    ring("3", &f3, &f1, &f2);
    ring("2", &f2, &f3, &f1);
    ring("1", &f1, &f2, &f3);

    assert!(f1.take().unwrap().resume().is_none());
    assert_eq!(out.take().join(" "), "1 2 3 1 2 3 1 2 3");
}

#[test]
fn fibonacci_through_an_iterator() {
    let a = Rc::new(Cell::new(0));
    let mut fiber = Some(
        FiberContext::new({
            let a = a.clone();
            move |mut main| {
                let mut b = 1;
                loop {
                    main = main.resume().expect("main does not end");
                    let next = a.get() + b;
                    a.set(b);
                    b = next;
                }
            }
        })
        .unwrap(),
    );
    let numbers: Vec<u32> = std::iter::from_fn(|| {
        fiber = fiber.take()?.resume();
        Some(a.get())
    })
    .take(10)
    .collect();
    assert_eq!(numbers, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34]);
}

#[test]
fn resume_with_transcript() {
    let out = Log::new();
    let data = Cell::new(0);
    scope(|s| {
        let f = s
            .fiber(|m| {
                out.line(format!("f1: entered first time: {}", data.get()));
                data.set(data.get() + 1);
                let m = m.resume().unwrap();
                out.line(format!("f1: entered second time: {}", data.get()));
                data.set(data.get() + 1);
                let m = m.resume().unwrap();
                out.line(format!("f1: entered third time: {}", data.get()));
                m
            })
            .unwrap();
        let f = f.resume().unwrap();
        out.line(format!("f1: returned first time: {}", data.get()));
        data.set(data.get() + 1);
        let f = f.resume().unwrap();
        out.line(format!("f1: returned second time: {}", data.get()));
        data.set(data.get() + 1);
        let f = s.resume_with(f, |m| {
            out.line(format!("f2: entered: {}", data.get()));
            data.set(-1);
            m
        });
        out.line("f1: returned third time");
        assert!(f.is_none());
    });
    assert_eq!(
        out.take(),
        [
            "f1: entered first time: 0",
            "f1: returned first time: 1",
            "f1: entered second time: 2",
            "f1: returned second time: 3",
            "f2: entered: 4",
            "f1: entered third time: -1",
            "f1: returned third time",
        ]
    );
}

#[test]
fn returning_another_fiber_goes_on_there() {
    let out = Log::new();
    let m: Place = Place::default();
    let f1 = FiberContext::with_entry(&ProtectedFixedSize::default(), {
        let (out, m) = (out.clone(), m.clone());
        move |f| {
            out.line("f1: entered first time");
            assert!(f.is_none(), "f2 has ended");
            m.take().expect("f2 kept main")
        }
    })
    .unwrap();
    let f2 = FiberContext::new({
        let out = out.clone();
        move |f| {
            out.line("f2: entered first time");
            m.set(Some(f));
            f1
        }
    })
    .unwrap();
    assert!(f2.resume().is_none());
    out.line("main: done");
    assert_eq!(out.take(), ["f2: entered first time", "f1: entered first time", "main: done"]);
}

#[test]
fn passing_data_through_a_capture() {
    let out = Log::new();
    let i = Cell::new(1);
    scope(|s| {
        let lambda = s
            .fiber(|caller| {
                out.line(format!("inside lambda,i=={}", i.get()));
                i.set(i.get() + 1);
                caller.resume().unwrap()
            })
            .unwrap();
        let lambda = lambda.resume();
        out.line(format!("i=={}", i.get()));
        let lambda = lambda.unwrap().resume();
        assert!(lambda.is_none());
    });
    assert_eq!(out.take(), ["inside lambda,i==1", "i==2"]);
}

/// Four fibers in a chain. Symmetric: the last switches straight back to the first. Asymmetric:
/// each suspends to its caller, which takes N - 1 switches more.
#[test]
fn chain_of_four_takes_three_switches_more_when_asymmetric() {
    const N: usize = 4;
    assert_eq!(symmetric_chain(), N + 1);
    assert_eq!(asymmetric_chain(N) - symmetric_chain(), N - 1);
}

/// main -> f1 -> f2 -> f3 -> f4 -> f1; returns the number of switches.
fn symmetric_chain() -> usize {
    let switches = Cell::new(0);
    let count = || switches.set(switches.get() + 1);
    let pf1: Cell<Option<FiberContext>> = Cell::new(None);
    scope(|s| {
        let f4 = s.fiber(|_f3| {
            count();
            let _ = pf1.take().expect("f1 is suspended").resume();
            unreachable!("f4 is unwound where it stands")
        });
        let f4 = f4.unwrap();
        let f3 = s.fiber(|_f2| {
            count();
            let _ = f4.resume();
            unreachable!("f3 is unwound where it stands")
        });
        let f3 = f3.unwrap();
        let f2 = s.fiber(|_f1_elsewhere| {
            count();
            let _ = f3.resume();
            unreachable!("f2 is unwound where it stands")
        });
        let f2 = f2.unwrap();
        let f1 = s.fiber(|main| {
            count();
            // Stores f1 where f4 finds it, and gives f2 a meaningless fiber in its place.
            let stand_in = FiberContext::new(|caller| caller).unwrap();
            let f4 = s.resume_with(f2, |f1| {
                pf1.set(Some(f1));
                Some(stand_in)
            });
            // Unwinds f4, which holds f3, which holds f2.
            drop(f4.expect("f4 comes back directly"));
            main
        });
        count();
        assert!(f1.unwrap().resume().is_none());
    });
    switches.get()
}

/// main -> f1 -> ... -> fn -> ... -> f1 -> main; returns the number of switches.
fn asymmetric_chain(n: usize) -> usize {
    let switches = Rc::new(Cell::new(0));
    let mut callee: Option<FiberContext> = None;
    for _ in 0..n {
        let (target, switches) = (callee.take(), switches.clone());
        let count = move || switches.set(switches.get() + 1);
        let fiber = FiberContext::new(move |caller| {
            if let Some(target) = target {
                count();
                assert!(target.resume().is_none());
            }
            count();
            caller
        });
        callee = Some(fiber.unwrap());
    }
    switches.set(switches.get() + 1);
    assert!(callee.unwrap().resume().is_none());
    switches.get()
}

/// The proposal's `filament`: keeps its own fiber up to date, whichever fiber resumes it.
#[derive(Default, Clone)]
struct Filament(Place);

impl Filament {
    fn new(f: impl FnOnce() -> FiberContext + 'static) -> Filament {
        let fiber = FiberContext::with_entry(&ProtectedFixedSize::default(), move |_| f());
        Filament(Rc::new(Cell::new(Some(fiber.unwrap()))))
    }

    fn resume_next(&self, next: &Filament) {
        let me = self.0.clone();
        let fiber = next.0.take().expect("the next filament is suspended");
        let resumed = fiber.resume_with(move |suspended| {
            me.set(Some(suspended));
            None
        });
        assert!(resumed.is_none());
    }
}

#[test]
fn any_filament_may_resume_another() {
    let out = Log::new();
    let main = Filament::default();
    let filaments: Rc<RefCell<Vec<Filament>>> = Rc::default();
    for name in ["a", "b", "c"] {
        let (out, main, all) = (out.clone(), main.clone(), filaments.clone());
        let filament = Filament::new(move || {
            let find = |index: usize| all.borrow()[index].clone();
            let index = ["a", "b", "c"].iter().position(|other| *other == name).unwrap();
            // None of them knows the order: first a, b, c; then main resumes b.
            for round in 0..2 {
                out.line(format!("{name}{round}"));
                if index < 2 {
                    find(index).resume_next(&find(index + 1));
                } else {
                    find(index).resume_next(&main);
                }
            }
            main.0.take().expect("main is suspended")
        });
        filaments.borrow_mut().push(filament);
    }
    let start = filaments.borrow()[0].clone();
    main.resume_next(&start);
    out.line("main");
    let second = filaments.borrow()[1].clone();
    main.resume_next(&second);
    assert_eq!(out.take(), ["a0", "b0", "c0", "main", "b1", "c1"]);
    filaments.borrow_mut().clear();
}

#[test]
fn words_in_columns() {
    struct FinalEol<'a>(&'a RefCell<String>);
    impl Drop for FinalEol<'_> {
        fn drop(&mut self) {
            self.0.borrow_mut().push('\n');
        }
    }
    let words = [
        "peas", "porridge", "hot", "peas", "porridge", "cold", "peas", "porridge", "in", "the",
        "pot", "nine", "days", "old",
    ];
    let (num, width) = (5, 15);
    let out = RefCell::new(String::new());
    scope(|s| {
        let writer = s.consumer(|input| {
            let _eol = FinalEol(&out);
            loop {
                for _ in 0..num {
                    let Some(word) = input.next() else { return };
                    out.borrow_mut().push_str(&format!("{word:>width$}"));
                }
                out.borrow_mut().push('\n');
            }
        });
        let mut writer: Consumer<'_, &str> = writer.unwrap();
        writer.extend(words);
    });
    let expected = [
        "           peas       porridge            hot           peas       porridge",
        "           cold           peas       porridge             in            the",
        "            pot           nine           days            old",
        "",
    ];
    assert_eq!(out.into_inner(), expected.join("\n"));
}
