//! One feature or one mistake a file. `config/invalid/NAME.json` is refused with the text of `NAME.message`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use weir_filter::config::Config;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config").join(folder);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    files
}

#[test]
fn valid_configurations_are_accepted() {
    let files = files("valid");
    assert!(files.len() >= 5, "found {}", files.len());
    for file in files {
        if let Err(mistakes) = Config::parse(&fs::read(&file).unwrap()) {
            panic!("{}: {mistakes}", file.display());
        }
    }
}

#[test]
fn each_mistake_is_refused_with_its_message() {
    let files = files("invalid");
    assert!(files.len() >= 40, "found {}", files.len());
    for file in files {
        let mistakes = Config::parse(&fs::read(&file).unwrap()).expect_err(&file.display().to_string());
        let expected = fs::read_to_string(file.with_extension("message"))
            .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(mistakes.to_string(), expected.trim_end(), "{}", file.display());
    }
}
