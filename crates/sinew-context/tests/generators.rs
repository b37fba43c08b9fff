//! Generators and consumers.

use sinew_context::stack::{ProtectedFixedSize, StackCache, StackPool};
use sinew_context::{Consumer, FiberContext, Generator, PushError};
use sinew_testkit::Log;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

#[test]
fn nothing_runs_before_the_first_value_is_asked_for() {
    let started = Rc::new(Cell::new(false));
    let generator = Generator::new({
        let started = started.clone();
        move |out| {
            started.set(true);
            out.give(1);
        }
    });
    let mut generator = generator.unwrap();
    assert!(!started.get());
    assert_eq!(generator.next(), Some(1));
    assert!(started.get());
    assert_eq!(generator.next(), None);
    assert!(generator.is_finished());
    assert_eq!(generator.next(), None);
}

#[test]
fn an_empty_generator_is_an_empty_iterator() {
    assert_eq!(Generator::<u32>::new(|_| ()).unwrap().count(), 0);
}

#[test]
fn dropping_a_generator_unwinds_its_function() {
    let log = Log::new();
    let generator = Generator::new({
        let log = log.clone();
        move |out| {
            let _noise = log.on_drop("local");
            for number in 0.. {
                out.give(number);
            }
        }
    });
    assert_eq!(generator.unwrap().take(3).collect::<Vec<i32>>(), [0, 1, 2]);
    assert_eq!(log.take(), ["local"]);
}

#[test]
fn a_panic_in_the_function_comes_out_of_next() {
    let log = Log::new();
    let mut generator = Generator::new({
        let log = log.clone();
        move |out| {
            let _noise = log.on_drop("local");
            out.give(1);
            panic!("no two");
        }
    })
    .unwrap();
    assert_eq!(generator.next(), Some(1));
    let result = catch_unwind(AssertUnwindSafe(|| generator.next()));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"no two"));
    assert_eq!(log.take(), ["local"]);
    assert_eq!(generator.next(), None);
}

#[test]
fn values_that_were_given_and_not_taken_are_dropped() {
    let log = Log::new();
    let mut generator = Generator::new({
        let log = log.clone();
        move |out| {
            out.give(log.on_drop("first"));
            out.give(log.on_drop("second"));
        }
    })
    .unwrap();
    let first = generator.next();
    drop(generator);
    log.line("generator dropped");
    drop(first);
    assert_eq!(log.take(), ["generator dropped", "first"]);
}

#[test]
fn generators_nest_and_can_be_moved_between_fibers() {
    let numbers = Generator::new(|out| {
        let inner = Generator::new(|out| (0..3).for_each(|number| out.give(number))).unwrap();
        for number in inner {
            out.extend([number * 10, number * 10 + 1]);
        }
    });
    let mut numbers = numbers.unwrap();
    assert_eq!(numbers.next(), Some(0));
    // Another fiber asks for the rest.
    let collected = Rc::new(Cell::new(Vec::new()));
    let fiber = FiberContext::new({
        let collected = collected.clone();
        move |caller| {
            collected.set(numbers.collect());
            caller
        }
    });
    assert!(fiber.unwrap().resume().is_none());
    assert_eq!(collected.take(), [1, 10, 11, 20, 21]);
}

#[test]
fn a_generator_function_may_switch_to_others_meanwhile() {
    let generator = Generator::new(|out| {
        for number in 0..3 {
            let helper = FiberContext::new(|caller| caller.resume().unwrap());
            let helper = helper.unwrap().resume().unwrap();
            out.give(number);
            assert!(helper.resume().is_none());
        }
    });
    assert_eq!(generator.unwrap().sum::<i32>(), 3);
}

#[test]
fn many_generators_on_one_pool() {
    let pool = StackPool::new().unwrap();
    let cache = StackCache::new(&pool);
    for round in 0..1000_u64 {
        let numbers = Generator::with_allocator(&cache, move |out| {
            for number in 0..10 {
                out.give(number * round);
            }
        });
        assert_eq!(numbers.unwrap().sum::<u64>(), 45 * round);
    }
    assert_eq!(pool.stats().allocated, 1);
}

#[test]
fn a_function_that_does_not_fit_is_an_error() {
    let small = ProtectedFixedSize::new(16 * 1024).unwrap();
    let large = [1_u8; 20 * 1024];
    let error = Generator::with_allocator(&small, move |out| out.give(large[5])).unwrap_err();
    assert!(error.to_string().contains("use a larger stack"), "{error}");
}

#[test]
fn the_result_of_the_function_can_be_taken_once() {
    let mut generator = Generator::new(|out| {
        out.give(1);
        String::from("done")
    })
    .unwrap();
    assert_eq!(generator.take_result(), None);
    assert_eq!(generator.next(), Some(1));
    assert_eq!(generator.take_result(), None);
    assert_eq!(generator.next(), None);
    assert_eq!(generator.take_result().as_deref(), Some("done"));
    assert_eq!(generator.take_result(), None);
}

#[test]
fn close_returns_the_result_even_of_a_function_that_ended_early() {
    let mut sum = Consumer::new(|input| input.sum::<i32>()).unwrap();
    sum.extend(1..=4);
    assert_eq!(sum.close(), 10);
    let mut first = Consumer::new(|input| input.next()).unwrap();
    first.extend([7, 8, 9]);
    assert_eq!(first.close(), Some(7));
    let mut panicked = Consumer::new(|input: &mut sinew_context::Input<i32>| {
        input.next();
        panic!("early");
    })
    .unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| panicked.push(1))).is_err());
    let result = catch_unwind(AssertUnwindSafe(|| panicked.close()));
    let text = *result.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("has panicked before"), "{text}");
}

#[test]
fn a_consumer_starts_with_the_first_value_and_finishes_when_closed() {
    let log = Log::new();
    let mut consumer = Consumer::new({
        let log = log.clone();
        move |input| {
            let _noise = log.on_drop("destructor");
            log.line("start");
            for number in input.by_ref() {
                log.line(number);
            }
            assert_eq!(input.next(), None);
            log.line("end");
        }
    })
    .unwrap();
    assert!(log.take().is_empty());
    consumer.push(1).unwrap();
    consumer.extend([2, 3]);
    assert_eq!(log.take(), ["start", "1", "2", "3"]);
    consumer.close();
    assert_eq!(log.take(), ["end", "destructor"]);
}

#[test]
fn a_consumer_that_got_nothing_still_runs_to_its_end() {
    let log = Log::new();
    let consumer = Consumer::<u32>::new({
        let log = log.clone();
        move |input| log.line(input.count())
    });
    drop(consumer.unwrap());
    assert_eq!(log.take(), ["0"]);
}

#[test]
fn a_consumer_that_has_enough_gives_values_back() {
    let mut consumer = Consumer::new(|input| {
        input.next();
        input.next();
    })
    .unwrap();
    assert_eq!(consumer.push('a'), Ok(()));
    assert!(!consumer.is_finished());
    assert_eq!(consumer.push('b'), Ok(()));
    assert!(consumer.is_finished());
    assert_eq!(consumer.push('c'), Err(PushError('c')));
    let mut rest = ['d', 'e'].into_iter();
    consumer.extend(rest.by_ref());
    assert_eq!(rest.next(), Some('d'), "nothing was taken from the iterator");
    let mut early = Consumer::new(|_| ()).unwrap();
    assert_eq!(early.push(1), Err(PushError(1)), "ended without looking at the value");
}

#[test]
fn a_panic_in_a_consumer_comes_out_of_push_or_close() {
    let mut consumer = Consumer::new(|input| {
        for number in input {
            assert_ne!(number, 2, "two");
        }
        panic!("at the end");
    })
    .unwrap();
    consumer.push(1).unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| consumer.push(2)));
    assert!(result.is_err());
    assert!(consumer.is_finished());
    let mut consumer = Consumer::new(|input: &mut sinew_context::Input<i32>| {
        input.for_each(drop);
        panic!("at the end");
    })
    .unwrap();
    consumer.push(1).unwrap();
    let result = catch_unwind(AssertUnwindSafe(|| consumer.close()));
    assert_eq!(result.unwrap_err().downcast_ref(), Some(&"at the end"));
}

#[test]
fn a_consumer_dropped_by_a_panic_is_unwound() {
    let log = Log::new();
    let mut consumer = Consumer::new({
        let log = log.clone();
        move |input: &mut sinew_context::Input<i32>| {
            let _noise = log.on_drop("destructor");
            input.for_each(drop);
            log.line("end of input");
        }
    })
    .unwrap();
    consumer.push(1).unwrap();
    let result = catch_unwind(AssertUnwindSafe(move || {
        let _consumer = consumer;
        panic!("elsewhere");
    }));
    assert!(result.is_err());
    assert_eq!(log.take(), ["destructor"]);
}
