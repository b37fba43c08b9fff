//! One word for each thread, read by a few instructions wherever it is inlined.
//!
//! The compiler may keep the address of a `thread_local!` in a register. After a switch, code may
//! continue on another thread and would access the previous thread's variable. Code that uses a
//! `thread_local!` across switches must therefore access it in a function that is not inlined. Here
//! the compiler never sees the address: each access is a separate block of assembly, which the
//! compiler can neither move across a switch nor merge with another.

/// Defines the module `$name` with `get` and `set` of a word that each thread has, initially null.
///
/// With glibc the word is thread-local storage of the kind *initial exec*: eight bytes that every
/// thread has from its start. On other systems it is a `thread_local!` behind functions that are
/// never inlined.
///
/// # Safety
/// `$symbol` is the word's name for the linker, and is pasted into assembly. It must be a plain
/// name that nothing else in the program uses, neither another crate nor another version of the
/// same crate. The `unsafe` in the macro call stands for this promise.
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
                // SAFETY: reads the calling thread's own word.
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
                // SAFETY: writes the calling thread's own word.
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

/// Defines the module `$name` with `get` and `set` of a word that each thread has, initially null.
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
