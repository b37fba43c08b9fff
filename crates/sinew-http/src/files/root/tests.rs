use super::*;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::Command;

/// A directory for one test, with `root` in it. Removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Scratch {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sinew-http-root-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("root/inner")).unwrap();
        fs::write(path.join("secret"), "secret").unwrap();
        fs::write(path.join("root/public"), "public").unwrap();
        fs::write(path.join("root/inner/deep"), "public").unwrap();
        Scratch(path.canonicalize().unwrap())
    }

    fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// The root, opened in each way that this platform has.
    fn roots(&self) -> Vec<Root> {
        let open = || Root::new(&self.root()).unwrap();
        vec![open(), Root { has_beneath: false, ..open() }]
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The content of the file that a path leads to.
fn found(root: &Root, path: &str) -> Result<String, io::ErrorKind> {
    match root.open(Path::new(path)) {
        Ok(Node::File(mut file, _)) => {
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            Ok(text)
        }
        Ok(Node::Directory(_)) => Ok("a directory".into()),
        Err(error) => Err(error.kind()),
    }
}

const NOT_FOUND: Result<String, io::ErrorKind> = Err(io::ErrorKind::NotFound);

#[test]
fn files_and_directories_are_found_in_each_way() {
    let scratch = Scratch::new();
    for root in scratch.roots() {
        for (path, text) in [
            ("", "a directory"),
            ("inner", "a directory"),
            ("public", "public"),
            ("inner/deep", "public"),
        ] {
            assert_eq!(found(&root, path), Ok(text.into()), "{path}");
        }
        let long = "a".repeat(300);
        for path in ["nothing", "inner/nothing", "nothing/deep", "public/deep", &long] {
            assert_eq!(found(&root, path), NOT_FOUND, "{path}");
        }
    }
}

#[test]
fn links_are_followed_within_the_root_only() {
    let scratch = Scratch::new();
    let root = scratch.root();
    symlink("inner/deep", root.join("relative")).unwrap();
    symlink(root.join("inner/deep"), root.join("absolute")).unwrap();
    symlink("../public", root.join("inner/up")).unwrap();
    symlink("inner", root.join("directory")).unwrap();
    symlink(".", root.join("here")).unwrap();
    symlink("../secret", root.join("out")).unwrap();
    symlink(scratch.0.join("secret"), root.join("absolutely-out")).unwrap();
    symlink("../../root/../secret", root.join("inner/far-out")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("/", root.join("slash")).unwrap();
    symlink("/proc/self/root", root.join("magic")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("nothing", root.join("dangling")).unwrap();
    // The name of this sibling begins with the root's name.
    fs::write(scratch.0.join("root-too"), "secret").unwrap();
    symlink("../root-too", root.join("sibling")).unwrap();
    for opened in scratch.roots() {
        for path in ["relative", "absolute", "inner/up", "directory/deep", "here/here/public"] {
            assert_eq!(found(&opened, path), Ok("public".into()), "{path}");
        }
        for path in [
            "out",
            "absolutely-out",
            "inner/far-out",
            "directory/far-out",
            "parent",
            "parent/secret",
            "slash",
            "slash/etc/passwd",
            "magic",
            "magic/etc/passwd",
            "loop",
            "dangling",
            "sibling",
            // Never requested, because `path` refuses these.
            "..",
            "../secret",
            "/etc/passwd",
        ] {
            assert_eq!(found(&opened, path), NOT_FOUND, "{path}");
        }
    }
}

#[test]
fn fifos_and_sockets_are_not_found_without_waiting() {
    let _watchdog = sinew_testkit::watch::a_minute();
    let scratch = Scratch::new();
    let root = scratch.root();
    let made = Command::new("mkfifo").arg(root.join("fifo")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    for opened in scratch.roots() {
        assert_eq!(found(&opened, "fifo"), NOT_FOUND);
        assert_eq!(found(&opened, "socket"), NOT_FOUND);
    }
}

/// Sets the flag also if the test fails, so that the swapping thread ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens `path` repeatedly, while a thread replaces `swapped`, in the root, by a link to `target`
/// and back.
fn open_while_it_is_swapped(path: &str, swapped: &str, target: &str) {
    let _watchdog = sinew_testkit::watch::a_minute();
    let scratch = Scratch::new();
    fs::create_dir(scratch.0.join("outside")).unwrap();
    fs::write(scratch.0.join("outside/deep"), "secret").unwrap();
    let (link, aside) = (scratch.0.join("link"), scratch.0.join("aside"));
    symlink(target, &link).unwrap();
    let swapped = scratch.root().join(swapped);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&swapped, &aside).unwrap();
                fs::rename(&link, &swapped).unwrap();
                fs::rename(&swapped, &link).unwrap();
                fs::rename(&aside, &swapped).unwrap();
            }
        });
        let _end = SetAtEnd(&over);
        for opened in scratch.roots() {
            // Both results have to occur; otherwise nothing was swapped meanwhile.
            let (mut there, mut gone) = (0, 0);
            while there < 100 || gone < 100 || there + gone < 3000 {
                match found(&opened, path) {
                    Ok(text) => {
                        assert_eq!(text, "public");
                        there += 1;
                    }
                    Err(kind) => {
                        assert_eq!(kind, io::ErrorKind::NotFound);
                        gone += 1;
                    }
                }
            }
        }
    });
}

#[test]
fn a_directory_that_becomes_a_link_does_not_lead_out() {
    open_while_it_is_swapped("inner/deep", "inner", "../outside");
}

#[test]
fn a_file_that_becomes_a_link_does_not_lead_out() {
    open_while_it_is_swapped("public", "public", "../secret");
}

#[test]
fn a_link_that_appears_on_the_way_is_not_followed() {
    let scratch = Scratch::new();
    let root = scratch.root();
    symlink("../secret", root.join("out")).unwrap();
    symlink("..", root.join("parent")).unwrap();
    symlink("inner", root.join("directory")).unwrap();
    let opened = Root::new(&root).unwrap();
    let descends = |path: &str| walk::descend(&opened.directory, Path::new(path)).is_ok();
    assert!(descends("") && descends("public") && descends("inner/deep"));
    for path in ["out", "parent", "parent/secret", "directory/deep", "..", "../secret", "/etc"] {
        assert!(!descends(path), "{path}");
    }
}

#[test]
fn a_directory_that_takes_the_name_of_the_root_is_not_served() {
    let scratch = Scratch::new();
    for opened in scratch.roots() {
        fs::rename(scratch.root(), scratch.0.join("moved")).unwrap();
        fs::create_dir(scratch.root()).unwrap();
        fs::write(scratch.root().join("other"), "other").unwrap();
        assert_eq!(found(&opened, "other"), NOT_FOUND);
        fs::remove_dir_all(scratch.root()).unwrap();
        fs::rename(scratch.0.join("moved"), scratch.root()).unwrap();
        assert_eq!(found(&opened, "public"), Ok("public".into()));
    }
}

#[test]
fn only_a_directory_is_a_root() {
    let scratch = Scratch::new();
    let kind = |name: &str| Root::new(&scratch.root().join(name)).unwrap_err().kind();
    assert_eq!(kind("public"), io::ErrorKind::NotADirectory);
    assert_eq!(kind("nothing"), io::ErrorKind::NotFound);
}
