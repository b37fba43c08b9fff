//! A process that has no descriptors left.

use super::{Folder, on_each};
use sinew::fs::{self, File};

#[test]
fn without_descriptors_opening_fails_as_in_the_standard_library() {
    let name = "limits::without_descriptors_opening_fails_as_in_the_standard_library";
    sinew_testkit::child::child(name, || {
        let limit = libc::rlimit { rlim_cur: 200, rlim_max: 200 };
        // SAFETY: a valid limit for this process.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
        on_each(|| {
            let folder = Folder::on_disk();
            let path = folder.file("one");
            fs::write(&path, "text").unwrap();
            let file = File::open(&path).unwrap();
            let mut taken = Vec::new();
            let theirs = loop {
                match std::fs::File::open(&path) {
                    Ok(file) => taken.push(file),
                    Err(error) => break error.raw_os_error(),
                }
            };
            assert_eq!(theirs, Some(libc::EMFILE));
            assert_eq!(File::open(&path).unwrap_err().raw_os_error(), theirs);
            assert_eq!(fs::read(&path).unwrap_err().raw_os_error(), theirs);
            assert_eq!(fs::read_dir(&folder.0).unwrap_err().raw_os_error(), theirs);
            assert_eq!(file.try_clone().unwrap_err().raw_os_error(), theirs);
            // Open files still work.
            let mut buffer = [0; 4];
            file.read_exact_at(&mut buffer, 0).unwrap();
            assert_eq!(&buffer, b"text");
            file.sync_all().unwrap();
            taken.clear();
            assert_eq!(fs::read(&path).unwrap(), b"text");
        });
    })
    .assert_success();
}
