//! A word of each thread, read by one or two instructions wherever it is inlined.
//!
//! The compiler may keep the address of a `thread_local!` in a register. After a switch, code may go
//! on in another thread, and would read that of the one before. Whoever uses one must therefore call
//! a function that is not inlined. Here the address is never in the compiler's hands: each access is
//! assembly of its own, which it can neither move across a switch nor merge with another.

/// Defines the module `$name` with `get` and `set` of a word of each thread, null at first.
///
/// Thread-local storage of the kind *initial exec*, on glibc: eight bytes of what every thread has
/// from the beginning. On other systems, a `thread_local!` behind functions that are never inlined.
///
/// # Safety
/// `$symbol` is its name for the linker, and goes into assembly as it is: a plain name that nothing
/// else in a program uses, neither another crate nor another version of the same one. That is the
/// promise behind the `unsafe` with which the macro is called.
#[doc(hidden)]
#[macro_export]
#[cfg(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
macro_rules! thread_word {
    (unsafe $name:ident, $symbol:expr) => {
        mod $name {
            use core::arch::{asm, global_asm};

            global_asm!(
                concat!(".pushsection .tbss.", $symbol, ",\"awT\",@nobits"),
                concat!(".globl ", $symbol),
                concat!(".type ", $symbol, ",@object"),
                concat!(".size ", $symbol, ",8"),
                ".balign 8",
                concat!($symbol, ":"),
                ".zero 8",
                ".popsection",
            );

            #[inline(always)]
            pub(super) fn get() -> *const () {
                let word: *const ();
                // SAFETY: reads the calling thread's own word.
                #[cfg(target_arch = "x86_64")]
                unsafe {
                    asm!(
                        concat!("mov {0}, qword ptr [rip + ", $symbol, "@gottpoff]"),
                        "mov {0}, qword ptr fs:[{0}]",
                        out(reg) word,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                // SAFETY: the same.
                #[cfg(target_arch = "aarch64")]
                unsafe {
                    asm!(
                        concat!("adrp {0}, :gottprel:", $symbol),
                        concat!("ldr {0}, [{0}, #:gottprel_lo12:", $symbol, "]"),
                        "mrs {1}, tpidr_el0",
                        "ldr {0}, [{0}, {1}]",
                        out(reg) word,
                        out(reg) _,
                        options(nostack, preserves_flags, readonly),
                    );
                }
                word
            }

            #[inline(always)]
            pub(super) fn set(word: *const ()) {
                // SAFETY: writes the calling thread's own word.
                #[cfg(target_arch = "x86_64")]
                unsafe {
                    asm!(
                        concat!("mov {0}, qword ptr [rip + ", $symbol, "@gottpoff]"),
                        "mov qword ptr fs:[{0}], {1}",
                        out(reg) _,
                        in(reg) word,
                        options(nostack, preserves_flags),
                    );
                }
                // SAFETY: the same.
                #[cfg(target_arch = "aarch64")]
                unsafe {
                    asm!(
                        concat!("adrp {0}, :gottprel:", $symbol),
                        concat!("ldr {0}, [{0}, #:gottprel_lo12:", $symbol, "]"),
                        "mrs {1}, tpidr_el0",
                        "str {2}, [{0}, {1}]",
                        out(reg) _,
                        out(reg) _,
                        in(reg) word,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    };
}

/// Defines the module `$name` with `get` and `set` of a word of each thread, null at first.
#[doc(hidden)]
#[macro_export]
#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
macro_rules! thread_word {
    (unsafe $name:ident, $symbol:expr) => {
        mod $name {
            use core::cell::Cell;
            use core::ptr;

            ::std::thread_local! {
                static WORD: Cell<*const ()> = const { Cell::new(ptr::null()) };
            }

            #[inline(never)]
            pub(super) fn get() -> *const () {
                WORD.get()
            }

            #[inline(never)]
            pub(super) fn set(word: *const ()) {
                WORD.set(word);
            }
        }
    };
}
