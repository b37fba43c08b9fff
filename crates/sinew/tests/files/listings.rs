//! Folders and names.

use super::{Folder, on_each};
use sinew::fs::{self, DirBuilder};
use std::collections::BTreeSet;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, MetadataExt, PermissionsExt};

#[test]
fn a_listing_has_every_entry_once() {
    on_each(|| {
        for folder in Folder::each() {
            for count in [0, 1, 63, 64, 65, 200] {
                let path = folder.file(&format!("listed-{count}"));
                fs::create_dir(&path).unwrap();
                for number in 0..count {
                    std::fs::write(path.join(number.to_string()), "").unwrap();
                }
                let mut listing = fs::read_dir(&path).unwrap();
                assert!(format!("{listing:?}").contains("listed"));
                let mut names = BTreeSet::new();
                for entry in &mut listing {
                    let entry = entry.unwrap();
                    assert_eq!(entry.path(), path.join(entry.file_name()));
                    assert!(entry.file_type().unwrap().is_file());
                    assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
                    assert!(names.insert(entry.file_name()));
                }
                assert_eq!(names.len(), count);
                assert!(listing.next().is_none());
            }
        }
    });
}

#[test]
fn a_listing_has_the_kinds_and_finds_removed_entries_gone() {
    on_each(|| {
        let folder = Folder::on_disk();
        std::fs::write(folder.file("a"), "").unwrap();
        fs::create_dir(folder.file("b")).unwrap();
        sinew::os::unix::fs::symlink("b", folder.file("c")).unwrap();
        let mut entries: Vec<_> = fs::read_dir(&folder.0).unwrap().map(Result::unwrap).collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let kinds: Vec<_> = entries.iter().map(|entry| entry.file_type().unwrap()).collect();
        assert!(kinds[0].is_file() && kinds[1].is_dir() && kinds[2].is_symlink());
        fs::remove_file(folder.file("a")).unwrap();
        let error = entries[0].metadata().unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
        assert!(kinds[2].is_symlink() && entries[2].metadata().unwrap().is_symlink());
    });
}

#[test]
fn files_are_linked_renamed_and_removed() {
    on_each(|| {
        for folder in Folder::each() {
            let (one, two) = (folder.file("one"), folder.file("two"));
            fs::write(&one, "text").unwrap();
            fs::hard_link(&one, &two).unwrap();
            assert_eq!(fs::metadata(&one).unwrap().nlink(), 2);
            fs::remove_file(&one).unwrap();
            fs::rename(&two, &one).unwrap();
            assert_eq!(fs::read_to_string(&one).unwrap(), "text");
            let link = folder.file("link");
            sinew::os::unix::fs::symlink(&one, &link).unwrap();
            assert_eq!(fs::read_link(&link).unwrap(), one);
            assert_eq!(fs::canonicalize(&link).unwrap(), std::fs::canonicalize(&one).unwrap());
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
            assert!(fs::metadata(&link).unwrap().is_file());
            let mut permissions = fs::metadata(&one).unwrap().permissions();
            permissions.set_mode(0o400);
            fs::set_permissions(&one, permissions).unwrap();
            assert_eq!(std::fs::metadata(&one).unwrap().permissions().mode() & 0o777, 0o400);
        }
    });
}

#[test]
fn folders_are_made_and_removed_with_their_content() {
    on_each(|| {
        for folder in Folder::each() {
            let top = folder.file("top");
            fs::create_dir_all(top.join("a/b/c")).unwrap();
            fs::create_dir_all(top.join("a/b/c")).unwrap();
            DirBuilder::new().mode(0o700).create(top.join("d")).unwrap();
            DirBuilder::new().recursive(true).create(top.join("d/e/f")).unwrap();
            let mode = std::fs::metadata(top.join("d")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700);
            fs::write(top.join("a/b/file"), "x").unwrap();
            fs::remove_dir_all(&top).unwrap();
            assert!(!fs::exists(&top).unwrap());
        }
    });
}
