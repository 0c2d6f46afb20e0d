//! One feature or one mistake a file. `config/invalid/NAME.yaml` is refused with the text of `NAME.expected`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test stops at the first surprise")]

use std::fs;
use std::path::{Path, PathBuf};

use weir_service::config::Config;
use weir_service::policy::Quota;

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut files: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .collect();
    files.sort();
    files
}

fn parse(path: &Path) -> Config {
    Config::parse(&fs::read_to_string(path).unwrap())
        .unwrap_or_else(|mistakes| panic!("{}: {mistakes}", path.display()))
}

#[test]
fn valid_files_are_accepted() {
    let files = files("tests/config/valid");
    assert!(files.len() >= 10, "found {}", files.len());
    for file in files {
        parse(&file);
    }
}

#[test]
fn examples_are_valid() {
    let files = files("../examples");
    assert!(!files.is_empty());
    for file in files {
        parse(&file);
    }
}

#[test]
fn each_mistake_is_refused_with_its_message() {
    let files = files("tests/config/invalid");
    assert!(files.len() >= 80, "found {}", files.len());
    let mut wrong = Vec::new();
    for file in files {
        let mistakes = Config::parse(&fs::read_to_string(&file).unwrap()).expect_err(&file.display().to_string());
        let expected = fs::read_to_string(file.with_extension("expected")).unwrap_or_default();
        if mistakes.to_string() != expected.trim_end() {
            wrong.push(format!("{}:\n{mistakes}\n", file.display()));
        }
        assert!(!mistakes.to_string().contains("hunter2"), "{mistakes}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_override_without_burst_scales_the_policys() {
    let config = parse(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/config/valid/everything.yaml"));
    let policy = config.policies.named("llm-tokens").unwrap();
    let numbers = |key| policy.quota(key, 0).map(|Quota { limit, burst, .. }| (limit, burst));
    assert_eq!(numbers("anyone"), Some((100_000, 20_000)));
    assert_eq!(numbers("org_9921"), Some((1_000_000, 200_000)));
    assert_eq!(numbers("org_9922"), Some((1_000_000, 5)));
    let policy = config.policies.named("per-key").unwrap();
    assert_eq!(policy.quota("internal-batch", 0), None);
    assert_eq!(policy.quota("org_9921", 0).map(|quota| quota.limit), Some(1000));
}
