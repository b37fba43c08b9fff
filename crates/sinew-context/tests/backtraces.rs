//! Backtraces: taken inside a fiber, they end at its base. A suspended fiber can be walked from
//! outside.

use sinew_context::FiberContext;
use std::backtrace::Backtrace;
use std::cell::RefCell;
use std::rc::Rc;

#[inline(never)]
fn deepest_function_of_the_fiber(out: &RefCell<String>) {
    *out.borrow_mut() = Backtrace::force_capture().to_string();
    std::hint::black_box(out);
}

#[test]
fn a_backtrace_taken_inside_a_fiber_ends_at_its_base() {
    let text: Rc<RefCell<String>> = Rc::default();
    let fiber = FiberContext::new({
        let text = text.clone();
        move |caller| {
            deepest_function_of_the_fiber(&text);
            caller
        }
    });
    assert!(fiber.unwrap().resume().is_none());
    let text = text.borrow();
    assert!(text.contains("deepest_function_of_the_fiber"), "{text}");
    assert!(text.contains("sinew_context::entry::first_function"), "{text}");
    // It contains no frame of the thread that resumed the fiber.
    assert!(!text.contains("test::run_test"), "{text}");
    let last = text.lines().rfind(|line| !line.trim_start().starts_with("at ")).unwrap();
    assert!(last.contains("trampoline"), "{text}");
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod walking {
    use super::*;
    use framehop::{
        CacheNative, ExplicitModuleSectionInfo, Module, UnwindRegsNative, Unwinder, UnwinderNative,
    };
    use object::{Object, ObjectSection, ObjectSymbol};
    use sinew_context::context::Registers;

    /// This program: its load address and its tables.
    struct Program {
        base: u64,
        image: Vec<u8>,
    }

    impl Program {
        fn load() -> Program {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let path = std::env::current_exe().unwrap();
            let first = maps.lines().find(|line| line.ends_with(path.to_str().unwrap())).unwrap();
            let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
            Program { base, image: std::fs::read(path).unwrap() }
        }

        fn unwinder(&self) -> UnwinderNative<Vec<u8>, framehop::MayAllocateDuringUnwind> {
            let elf = object::File::parse(&*self.image).unwrap();
            let range = |name: &str| {
                let section = elf.section_by_name(name)?;
                Some(section.address()..section.address() + section.size())
            };
            let data = |name: &str| Some(elf.section_by_name(name)?.data().ok()?.to_vec());
            let mut unwinder = UnwinderNative::new();
            unwinder.add_module(Module::new(
                "test".into(),
                self.base..self.base + self.image.len() as u64 * 2,
                self.base,
                ExplicitModuleSectionInfo {
                    base_svma: 0,
                    text_svma: range(".text"),
                    text: data(".text"),
                    got_svma: range(".got"),
                    eh_frame_svma: range(".eh_frame"),
                    eh_frame: data(".eh_frame"),
                    eh_frame_hdr_svma: range(".eh_frame_hdr"),
                    eh_frame_hdr: data(".eh_frame_hdr"),
                    ..Default::default()
                },
            ));
            unwinder
        }

        /// Returns the names of the functions on a suspended stack, innermost first.
        fn walk(&self, registers: Registers, stack: std::ops::Range<usize>) -> Vec<String> {
            let elf = object::File::parse(&*self.image).unwrap();
            let unwinder = self.unwinder();
            let mut cache = CacheNative::new();
            let (sp, fp) = (registers.stack as u64, registers.frame as u64);
            #[cfg(target_arch = "x86_64")]
            let start = UnwindRegsNative::new(registers.instruction as u64, sp, fp);
            #[cfg(target_arch = "aarch64")]
            let start = UnwindRegsNative::new(0, sp, fp);
            let mut read = |address: u64| {
                let inside = stack.contains(&(address as usize)) && address.is_multiple_of(8);
                // SAFETY: a word of the suspended fiber's stack.
                if inside { Ok(unsafe { *(address as *const u64) }) } else { Err(()) }
            };
            let pc = registers.instruction as u64;
            let mut frames = unwinder.iter_frames(pc, start, &mut cache, &mut read);
            let mut names = Vec::new();
            while let Some(frame) = frames.next().unwrap() {
                let address = frame.address_for_lookup() - self.base;
                let symbol = elf.symbols().find(|symbol| {
                    (symbol.address()..symbol.address() + symbol.size().max(1)).contains(&address)
                });
                names.push(symbol.map_or("?", |symbol| symbol.name().unwrap()).to_owned());
            }
            names
        }
    }

    #[inline(never)]
    fn waits_in_here(caller: FiberContext) -> FiberContext {
        let caller = caller.resume().unwrap();
        std::hint::black_box(caller)
    }

    #[inline(never)]
    fn calls_what_waits(caller: FiberContext) -> FiberContext {
        std::hint::black_box(waits_in_here(caller))
    }

    #[test]
    fn a_suspended_fiber_can_be_walked_to_its_base() {
        let fiber = FiberContext::new(calls_what_waits).unwrap().resume().unwrap();
        let program = Program::load();
        let names = program.walk(fiber.registers(), fiber.stack_range().unwrap());
        let place = |part: &str| {
            names.iter().position(|name| name.contains(part)).unwrap_or_else(|| {
                panic!("{part} is missing in {names:#?}");
            })
        };
        let order = [
            place("waits_in_here"),
            place("calls_what_waits"),
            place("5entry14first_function"),
            place("trampoline"),
        ];
        assert!(order.is_sorted(), "{names:#?}");
        assert_eq!(order[3], names.len() - 1, "nothing below the base: {names:#?}");
        assert!(fiber.resume().is_none());
    }

    #[test]
    fn a_fiber_that_never_ran_stands_at_its_base() {
        let fiber = FiberContext::new(|caller| caller).unwrap();
        let names = Program::load().walk(fiber.registers(), fiber.stack_range().unwrap());
        assert_eq!(names.len(), 1, "{names:#?}");
        assert!(names[0].contains("trampoline"));
    }
}
