//! The server sends nothing but regular files beneath the root.

use crate::site::Site;
use sinew_testkit::watch::a_minute;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const SECRET: &str = "nobody is to see this";

/// A site with secret files beside its root.
fn guarded(site: Site) -> Site {
    fs::write(site.outside("secret"), SECRET).unwrap();
    fs::create_dir(site.outside("private")).unwrap();
    fs::write(site.outside("private/secret"), SECRET).unwrap();
    site.write("inner/page.txt", "page");
    site.write("public.txt", "public");
    site
}

#[test]
fn no_path_leads_out_of_the_root() {
    let _watchdog = a_minute();
    let routed = guarded(Site::listing());
    let whole = guarded(Site::made(|files| files.listing(true)));
    let etc = "etc/passwd";
    for path in [
        "../secret",
        "inner/../../secret",
        "inner/../public.txt",
        "%2e%2e/secret",
        "%2E%2E/secret",
        ".%2e/secret",
        "%2e./secret",
        "..%2fsecret",
        "..%2Fsecret",
        "inner%2f..%2f..%2fsecret",
        "%2e%2e%2fsecret",
        "%252e%252e/secret",
        "%252e%252e%252fsecret",
        "..%252fsecret",
        "%25252e%25252e/secret",
        "..\\secret",
        "..%5csecret",
        "inner\\..\\..\\secret",
        "%c0%ae%c0%ae/secret",
        "..%c0%afsecret",
        "..;/secret",
        "..%00/secret",
        "public.txt%00",
        "public.txt%00.html",
        "%00",
        "./public.txt",
        "inner/./page.txt",
        "inner//page.txt",
        "..",
        "../",
        "%2e%2e",
        "%2e%2e/",
        "/",
        &format!("/{etc}"),
        &format!("//{etc}"),
        &format!("%2f{}", etc.replace('/', "%2f")),
        &format!("../../../../../../../../{etc}"),
        &format!("{}{etc}", "%2e%2e/".repeat(20)),
        &format!("file:///{etc}"),
        &format!("~root/{etc}"),
    ] {
        for (site, prefix) in [(&routed, "/files/"), (&whole, "/")] {
            let reply = site.get(&format!("{prefix}{path}"));
            // The router refuses a path that is not UTF-8.
            assert!(matches!(reply.status, 404 | 400), "{prefix}{path}: {reply:?}");
            assert!(!reply.text().contains(SECRET), "{prefix}{path}");
        }
    }
    for (site, path) in [(&routed, "/files/public.txt"), (&whole, "/public.txt")] {
        assert_eq!(site.get(path).text(), "public");
    }
}

#[test]
fn an_absolute_request_target_is_no_way_out() {
    let _watchdog = a_minute();
    let site = guarded(Site::made(|files| files));
    assert_eq!(site.get("http://x/public.txt").text(), "public");
    assert_eq!(site.get("http://x/../secret").status, 404);
    assert_eq!(site.get("http://x/%2e%2e/secret").status, 404);
}

#[test]
fn links_that_lead_out_are_not_found() {
    let _watchdog = a_minute();
    let site = guarded(Site::listing());
    symlink("../secret", site.inside("relative")).unwrap();
    symlink(site.outside("secret"), site.inside("absolute")).unwrap();
    symlink("../private", site.inside("directory")).unwrap();
    symlink(site.outside("private"), site.inside("absolute-directory")).unwrap();
    symlink("../../secret", site.inside("inner/deep")).unwrap();
    symlink("relative", site.inside("twice")).unwrap();
    symlink("/", site.inside("slash")).unwrap();
    symlink("/proc/self/cwd", site.inside("magic")).unwrap();
    symlink("loop", site.inside("loop")).unwrap();
    symlink("../private/secret", site.inside("inner/index.html")).unwrap();
    for path in [
        "relative",
        "absolute",
        "directory",
        "directory/",
        "directory/secret",
        "absolute-directory",
        "absolute-directory/",
        "absolute-directory/secret",
        "inner/deep",
        "twice",
        "slash",
        "slash/",
        "slash/etc/passwd",
        "magic/",
        "magic/Cargo.toml",
        "loop",
    ] {
        let reply = site.get(&format!("/files/{path}"));
        assert_eq!(reply.status, 404, "{path}: {reply:?}");
    }
    // An index that leads out does not count: the directory is listed.
    let listed = site.get("/files/inner/");
    assert_eq!(listed.status, 200);
    assert!(listed.text().contains("page.txt") && !listed.text().contains(SECRET));
}

#[test]
fn links_that_stay_within_are_followed() {
    let _watchdog = a_minute();
    let site = guarded(Site::new());
    symlink("public.txt", site.inside("relative")).unwrap();
    symlink(site.inside("public.txt"), site.inside("absolute")).unwrap();
    symlink("../public.txt", site.inside("inner/up")).unwrap();
    symlink("inner", site.inside("directory")).unwrap();
    symlink(site.inside("inner"), site.inside("absolute-directory")).unwrap();
    for (path, text) in [
        ("relative", "public"),
        ("absolute", "public"),
        ("inner/up", "public"),
        ("directory/page.txt", "page"),
        ("directory/up", "public"),
        ("absolute-directory/page.txt", "page"),
    ] {
        let reply = site.get(&format!("/files/{path}"));
        assert_eq!((reply.status, reply.text()), (200, text), "{path}");
    }
    let redirect = site.get("/files/directory");
    assert_eq!((redirect.status, redirect.field("location")), (301, Some("./directory/")));
}

#[test]
fn special_files_are_not_found_without_waiting() {
    let _watchdog = a_minute();
    let site = Site::new();
    let made = Command::new("mkfifo").arg(site.inside("fifo")).status().unwrap();
    assert!(made.success());
    fs::create_dir(site.inside("directory")).unwrap();
    let made = Command::new("mkfifo").arg(site.inside("directory/index.html")).status().unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(site.inside("socket")).unwrap();
    for path in ["fifo", "socket", "directory/", "directory/index.html"] {
        assert_eq!(site.get(&format!("/files/{path}")).status, 404, "{path}");
    }
}

#[test]
fn an_unreadable_file_is_forbidden() {
    let _watchdog = a_minute();
    let site = Site::new();
    let forbid = |name: &str| {
        let path = site.inside(name);
        fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
    };
    site.write("locked.txt", "locked");
    site.write("locked/page.txt", "locked");
    forbid("locked.txt");
    forbid("locked");
    if fs::read(site.inside("locked.txt")).is_ok() {
        // The superuser may read everything, so an unprivileged process has to run the test.
        return ask_again_as_nobody("escapes::an_unreadable_file_is_forbidden");
    }
    let status = |path: &str| site.get(path).status;
    assert_eq!(status("/files/locked.txt"), 403);
    // Only some kernels reveal that a directory may not be searched.
    assert!(matches!(status("/files/locked/page.txt"), 403 | 404));
    assert_eq!(status("/files/nothing"), 404);
    let reopened = fs::Permissions::from_mode(0o700);
    fs::set_permissions(site.inside("locked"), reopened).unwrap();
}

/// Runs a test in a process that is not privileged.
fn ask_again_as_nobody(test: &str) {
    const NOBODY: u32 = 65534;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact"]).uid(NOBODY).gid(NOBODY).current_dir("/");
    match command.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && text.contains("1 passed"), "{output:?}");
        }
        // Fails if the unprivileged user cannot reach the binary, or does not exist.
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "a skipped test must be visible")]
            {
                eprintln!("{test} needs an unprivileged process: {error}");
            }
        }
    }
}

/// Sets the flag also if the test fails, so that the swapping thread ends.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_file_that_becomes_a_link_meanwhile_does_not_lead_out() {
    let _watchdog = a_minute();
    let site = guarded(Site::new());
    let (page, link, aside) =
        (site.inside("public.txt"), site.outside("link"), site.outside("aside"));
    symlink("../secret", &link).unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                fs::rename(&page, &aside).unwrap();
                fs::rename(&link, &page).unwrap();
                fs::rename(&page, &link).unwrap();
                fs::rename(&aside, &page).unwrap();
            }
        });
        let _end = SetAtEnd(&over);
        for _ in 0..300 {
            let reply = site.get("/files/public.txt");
            match reply.status {
                200 => assert_eq!(reply.text(), "public"),
                status => assert_eq!(status, 404),
            }
        }
    });
}
