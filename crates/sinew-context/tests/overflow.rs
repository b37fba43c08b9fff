//! A stack overflow is recognised and reported. Other faults go to the previous handler.
//!
//! Each case runs in a separate process. `ci/overflow.sh` runs this file in release builds too,
//! with and without fat LTO.

use sinew_context::stack::{
    GuardKind, ProtectedFixedSize, Segmented, StackAllocator, StackCache, StackPool,
};
use sinew_context::{FiberContext, hook};
use sinew_testkit::child::child;
use sinew_testkit::stack::overflow;
use std::fmt::Write;

const SIGABRT: i32 = 6;
const SIGSEGV: i32 = 11;
const KIB: usize = 1024;

fn overflow_on(allocator: &dyn StackAllocator) {
    let fiber = FiberContext::with_allocator(allocator, |caller| {
        std::hint::black_box(overflow());
        caller
    });
    let _ = fiber.unwrap().resume();
}

const REPORT: [&str; 3] = [
    "sinew: stack overflow in a fiber: all 131072 bytes of the stack 0x",
    "fault at 0x",
    "`stack_size(262144)`",
];

#[test]
fn on_a_stack_of_a_pool() {
    child("on_a_stack_of_a_pool", || {
        overflow_on(&StackPool::builder().stack_size(128 * KIB).build().unwrap());
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn on_a_stack_of_a_pool_guarded_by_mprotect() {
    child("on_a_stack_of_a_pool_guarded_by_mprotect", || {
        let pool = StackPool::builder().stack_size(128 * KIB).guards(GuardKind::Mprotect);
        overflow_on(&pool.build().unwrap());
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn on_a_stack_of_a_cache() {
    child("on_a_stack_of_a_cache", || {
        let pool = StackPool::builder().stack_size(128 * KIB).build().unwrap();
        overflow_on(&StackCache::new(&pool));
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn on_a_mapping_of_its_own() {
    child("on_a_mapping_of_its_own", || {
        overflow_on(&ProtectedFixedSize::new(128 * KIB).unwrap());
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn at_the_limit_of_a_segmented_stack() {
    child("at_the_limit_of_a_segmented_stack", || {
        overflow_on(&Segmented::with_limit(16 * KIB, 128 * KIB).unwrap());
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn on_another_thread() {
    child("on_another_thread", || {
        let thread = std::thread::spawn(|| {
            overflow_on(&ProtectedFixedSize::new(128 * KIB).unwrap());
        });
        let _ = thread.join();
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn on_a_thread_that_rust_did_not_make() {
    extern "C" fn body(_: *mut libc::c_void) -> *mut libc::c_void {
        overflow_on(&ProtectedFixedSize::new(128 * KIB).unwrap());
        std::ptr::null_mut()
    }
    child("on_a_thread_that_rust_did_not_make", || {
        // SAFETY: an ordinary thread, joined at once. It has no alternate signal stack.
        unsafe {
            let mut thread = std::mem::zeroed();
            let none = std::ptr::null_mut::<libc::c_void>();
            assert_eq!(libc::pthread_create(&mut thread, none.cast(), body, none), 0);
            libc::pthread_join(thread, std::ptr::null_mut());
        }
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn in_a_fiber_nested_in_another() {
    child("in_a_fiber_nested_in_another", || {
        let outer = FiberContext::new(|caller| {
            overflow_on(&ProtectedFixedSize::new(128 * KIB).unwrap());
            caller
        });
        let _ = outer.unwrap().resume();
    })
    .assert_died(SIGSEGV, &REPORT);
}

#[test]
fn by_one_frame_larger_than_the_stack() {
    #[inline(never)]
    fn large() -> u8 {
        let frame = std::hint::black_box([3_u8; 150 * KIB]);
        frame[std::hint::black_box(100)]
    }
    child("by_one_frame_larger_than_the_stack", || {
        let stacks = ProtectedFixedSize::new(128 * KIB).unwrap();
        let fiber = FiberContext::with_allocator(&stacks, |caller| {
            std::hint::black_box(large());
            caller
        });
        let _ = fiber.unwrap().resume();
    })
    .assert_died(SIGSEGV, &REPORT[..1]);
}

#[test]
fn the_runtime_names_the_fiber_and_receives_the_report() {
    fn describe(stack: std::ops::Range<usize>, out: &mut dyn Write) -> std::fmt::Result {
        write!(out, "fiber \"worker\" (id 7, {} KiB)", stack.len() / KIB)
    }
    fn report(message: &str) {
        let text = format_args!("REPORT {message}").to_string();
        // SAFETY: writes a buffer of ours.
        unsafe { libc::write(2, text.as_ptr().cast(), text.len()) };
    }
    child("the_runtime_names_the_fiber_and_receives_the_report", || {
        // SAFETY: good enough for a test: the fault is in a function that holds no lock.
        unsafe {
            hook::set_describe_hook(describe).unwrap();
            hook::set_report_hook(report).unwrap();
            assert_eq!(hook::set_report_hook(report), Err(hook::AlreadySet));
        }
        overflow_on(&ProtectedFixedSize::new(128 * KIB).unwrap());
    })
    .assert_died(SIGSEGV, &["REPORT sinew: stack overflow in fiber \"worker\" (id 7, 128 KiB)"]);
}

#[test]
fn of_the_main_thread_is_still_reported_by_the_standard_library() {
    child("of_the_main_thread_is_still_reported_by_the_standard_library", || {
        // Installs the handler.
        let _ = FiberContext::new(|caller| caller).unwrap().resume();
        std::hint::black_box(overflow());
    })
    .assert_died(SIGABRT, &["has overflowed its stack"]);
}

#[test]
fn of_an_os_thread_is_still_reported_by_the_standard_library() {
    child("of_an_os_thread_is_still_reported_by_the_standard_library", || {
        let _ = FiberContext::new(|caller| caller).unwrap().resume();
        let thread = std::thread::Builder::new().name("plain".into());
        let thread = thread.spawn(|| std::hint::black_box(overflow())).unwrap();
        let _ = thread.join();
    })
    .assert_died(SIGABRT, &["thread 'plain'", "has overflowed its stack"]);
}

#[test]
fn other_faults_reach_the_handler_that_was_there_before() {
    extern "C" fn mine(_: libc::c_int) {
        // SAFETY: both are allowed in a signal handler.
        unsafe {
            let text = "the handler before\n";
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(42);
        }
    }
    let outcome = child("other_faults_reach_the_handler_that_was_there_before", || {
        // SAFETY: installs a handler, then faults on purpose.
        unsafe {
            libc::signal(libc::SIGSEGV, mine as *const () as usize);
            let _ = FiberContext::new(|caller| caller).unwrap().resume();
            std::ptr::write_volatile(std::ptr::without_provenance_mut::<u8>(64), 1);
        }
    });
    assert_eq!(outcome.status.code(), Some(42), "{outcome:#?}");
    assert!(outcome.stderr.contains("the handler before"));
    assert!(!outcome.stderr.contains("sinew:"));
}

fn fault_after(action: libc::sighandler_t) {
    // SAFETY: sets an action, then faults on purpose.
    unsafe {
        libc::signal(libc::SIGSEGV, action);
        let _ = FiberContext::new(|caller| caller).unwrap().resume();
        std::ptr::write_volatile(std::ptr::without_provenance_mut::<u8>(64), 1);
    }
}

#[test]
fn other_faults_end_the_process_where_there_was_no_handler() {
    let name = "other_faults_end_the_process_where_there_was_no_handler";
    let outcome = child(name, || fault_after(libc::SIG_DFL));
    outcome.assert_died(SIGSEGV, &[]);
    assert!(!outcome.stderr.contains("sinew:"), "{outcome:#?}");
}

#[test]
fn other_faults_end_the_process_where_they_were_ignored() {
    let name = "other_faults_end_the_process_where_they_were_ignored";
    let outcome = child(name, || fault_after(libc::SIG_IGN));
    outcome.assert_died(SIGSEGV, &[]);
    assert!(!outcome.stderr.contains("sinew:"), "{outcome:#?}");
}

#[test]
fn a_fault_at_a_freed_guard_is_not_reported() {
    let outcome = child("a_fault_at_a_freed_guard_is_not_reported", || {
        let stack = ProtectedFixedSize::new(128 * KIB).unwrap().allocate().unwrap();
        let guard = stack.range().start - 100;
        drop(stack);
        // SAFETY: faults on purpose.
        unsafe { std::ptr::write_volatile(guard as *mut u8, 1) };
    });
    assert!(!outcome.stderr.contains("sinew:"), "{outcome:#?}");
    assert!(outcome.died_of(SIGSEGV), "{outcome:#?}");
}
