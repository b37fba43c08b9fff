//! Errors equal the errors of the standard library.

use super::{Folder, on_each};
use sinew::fs::{self, File, OpenOptions};
use std::fmt::Debug;
use std::io::{self, Read, Seek, Write};

/// Checks that both fail with the same error.
#[track_caller]
fn assert_same<A: Debug, B: Debug>(ours: io::Result<A>, theirs: io::Result<B>) {
    let (ours, theirs) = (ours.unwrap_err(), theirs.unwrap_err());
    assert_eq!(ours.kind(), theirs.kind());
    assert_eq!(ours.raw_os_error(), theirs.raw_os_error());
}

#[test]
fn a_missing_file_is_not_found() {
    on_each(|| {
        use std::fs as std_fs;
        let folder = Folder::on_disk();
        let none = folder.file("none");
        assert_same(File::open(&none), std_fs::File::open(&none));
        assert_same(fs::read(&none), std_fs::read(&none));
        assert_same(fs::read_to_string(&none), std_fs::read_to_string(&none));
        assert_same(fs::write(none.join("a"), ""), std_fs::write(none.join("a"), ""));
        assert_same(fs::copy(&none, folder.file("b")), std_fs::copy(&none, folder.file("b")));
        assert_same(fs::metadata(&none), std_fs::metadata(&none));
        assert_same(fs::symlink_metadata(&none), std_fs::symlink_metadata(&none));
        assert_same(fs::canonicalize(&none), std_fs::canonicalize(&none));
        assert_same(fs::read_link(&none), std_fs::read_link(&none));
        assert_same(fs::remove_file(&none), std_fs::remove_file(&none));
        assert_same(fs::remove_dir(&none), std_fs::remove_dir(&none));
        assert_same(fs::remove_dir_all(&none), std_fs::remove_dir_all(&none));
        assert_same(fs::rename(&none, "x"), std_fs::rename(&none, "x"));
        assert_same(fs::hard_link(&none, "x"), std_fs::hard_link(&none, "x"));
        assert_same(fs::read_dir(&none), std_fs::read_dir(&none));
        assert_same(fs::create_dir(none.join("a")), std_fs::create_dir(none.join("a")));
        assert!(!fs::exists(&none).unwrap());
    });
}

#[test]
fn an_existing_file_is_not_created() {
    on_each(|| {
        let folder = Folder::on_disk();
        let path = folder.file("there");
        std::fs::write(&path, "text").unwrap();
        assert_same(File::create_new(&path), std::fs::File::create_new(&path));
        assert_same(fs::create_dir(&path), std::fs::create_dir(&path));
        assert_same(fs::create_dir_all(&path), std::fs::create_dir_all(&path));
        assert_same(fs::remove_dir(&folder.0), std::fs::remove_dir(&folder.0));
        assert_same(
            sinew::os::unix::fs::symlink("x", &path),
            std::os::unix::fs::symlink("x", &path),
        );
        assert_same(fs::read_dir(&path), std::fs::read_dir(&path));
        assert_eq!(std::fs::read(&path).unwrap(), b"text");
    });
}

#[test]
fn contradictions_are_invalid() {
    on_each(|| {
        assert_same(OpenOptions::new().open("Cargo.toml"), std::fs::OpenOptions::new().open("x"));
        let mut ours = OpenOptions::new();
        let mut theirs = std::fs::OpenOptions::new();
        ours.read(true).truncate(true);
        theirs.read(true).truncate(true);
        assert_same(ours.open("Cargo.toml"), theirs.open("Cargo.toml"));
        assert_same(File::open("a\0b"), std::fs::File::open("a\0b"));
    });
}

#[test]
fn the_wrong_direction_and_folders_are_errors() {
    on_each(|| {
        for folder in Folder::each() {
            let path = folder.file("one-way");
            let mut ours = File::create(&path).unwrap();
            let mut theirs = std::fs::File::create(&path).unwrap();
            assert_same(ours.read(&mut [0]), theirs.read(&mut [0]));
            assert_same(ours.read(&mut []), theirs.read(&mut []));
            let mut ours = File::open(&path).unwrap();
            let mut theirs = std::fs::File::open(&path).unwrap();
            assert_same(ours.write(b"x"), theirs.write(b"x"));
            assert_same(ours.set_len(3), theirs.set_len(3));
            let mut ours = File::open(&folder.0).unwrap();
            let mut theirs = std::fs::File::open(&folder.0).unwrap();
            assert_same(ours.read(&mut [0]), theirs.read(&mut [0]));
            assert_same(File::create(&folder.0), std::fs::File::create(&folder.0));
            assert!(ours.metadata().unwrap().is_dir());
        }
    });
}

#[test]
fn a_forbidden_file_is_refused() {
    let name = "errors::a_forbidden_file_is_refused";
    sinew_testkit::child::child(name, || {
        let folder = Folder::on_disk();
        let path = folder.file("forbidden");
        std::fs::write(&path, "secret").unwrap();
        let mut permissions = std::fs::metadata(&path).unwrap().permissions();
        std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0);
        std::fs::set_permissions(&path, permissions).unwrap();
        // SAFETY: affects only this process, which ends soon. Permissions do not apply to root.
        if unsafe { libc::getuid() } == 0 && unsafe { libc::setuid(65_534) } != 0 {
            println!("skipped: cannot become an ordinary user");
            return;
        }
        sinew::run(move || {
            assert_same(File::open(&path), std::fs::File::open(&path));
            assert_same(fs::read(&path), std::fs::read(&path));
        });
    })
    .assert_success();
    // The child no longer had permission to remove its folder.
    let left = std::fs::read_dir(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for entry in left.flatten().filter(|entry| entry.path().join("forbidden").exists()) {
        let _ = std::fs::remove_dir_all(entry.path());
    }
}

#[test]
fn an_offset_beyond_any_file_is_named() {
    on_each(|| {
        let mut files: Vec<_> = Folder::each()
            .iter()
            .map(|folder| {
                let path = folder.file("far");
                std::fs::write(&path, "text").unwrap();
                File::options().read(true).write(true).open(path).unwrap()
            })
            .collect();
        files.push(File::open("/dev/zero").unwrap());
        files.push(File::open("/proc/self/status").unwrap());
        for file in files {
            // Read once by the slow path, so that the quick path is not tried where it does not
            // exist.
            (&file).read_exact(&mut [0]).unwrap();
            let position = (&file).stream_position().unwrap();
            for offset in [u64::MAX, u64::MAX - 1, 1 << 63] {
                for error in [
                    file.read_at(&mut [0], offset).unwrap_err(),
                    file.write_at(b"x", offset).unwrap_err(),
                ] {
                    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
                    assert!(error.to_string().contains(&offset.to_string()), "{error}");
                }
            }
            assert_eq!((&file).stream_position().unwrap(), position);
        }
        for folder in Folder::each() {
            let path = folder.file("limit");
            let ours = File::create_new(&path).unwrap();
            let theirs = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            use std::os::unix::fs::FileExt;
            for offset in [i64::MAX as u64, i64::MAX as u64 - 1] {
                assert_same(ours.write_at(b"xy", offset), theirs.write_at(b"xy", offset));
                let (here, there) =
                    (ours.read_at(&mut [0; 2], offset), theirs.read_at(&mut [0; 2], offset));
                assert_eq!(here.map_err(|e| e.kind()), there.map_err(|e| e.kind()));
            }
        }
    });
}
