//! The properties of the fuzz targets, without a fuzzer: every committed input holds, and so do variants of it.
//!
//! An input that fails here is saved by writing its bytes, which the failure shows, to a file in
//! `fuzz/regressions/TARGET/`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test stops at the first surprise"
)]

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use proptest::prelude::*;
use proptest::sample::Index;
use proptest::test_runner::{Config, TestRunner};

#[path = "../../fuzz/properties/mod.rs"]
mod properties;

/// The committed inputs of a target with their paths: its corpus, and what was once a finding; for configurations also
/// those of other tests.
fn inputs(target: &str) -> Vec<(String, Vec<u8>)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders = vec![format!("fuzz/corpus/{target}"), format!("fuzz/regressions/{target}")];
    if target == "configuration" {
        folders.extend(["filter/tests/config/valid", "filter/tests/config/invalid", "fuzz/configs"].map(str::to_owned));
    }
    let mut inputs = Vec::new();
    for folder in folders.iter().map(|folder| root.join(folder)) {
        // A target without a finding has no folder for them.
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            inputs.push((path.display().to_string(), fs::read(path).unwrap()));
        }
    }
    inputs.sort();
    inputs
}

/// One change to an input.
#[derive(Clone, Debug)]
enum Change {
    Set(Index, u8),
    Insert(Index, u8),
    Cut(Index, Index),
    /// The end of another input in place of its own.
    Graft(Index, Index, Index),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<(Index, u8)>().prop_map(|(at, byte)| Change::Set(at, byte)),
        any::<(Index, u8)>().prop_map(|(at, byte)| Change::Insert(at, byte)),
        any::<(Index, Index)>().prop_map(|(from, to)| Change::Cut(from, to)),
        any::<(Index, Index, Index)>().prop_map(|(at, input, from)| Change::Graft(at, input, from)),
    ]
}

fn changed(mut data: Vec<u8>, changes: &[Change], inputs: &[(String, Vec<u8>)]) -> Vec<u8> {
    for change in changes {
        match change {
            Change::Set(at, byte) if !data.is_empty() => *at.get_mut(&mut data) = *byte,
            Change::Set(..) => {}
            Change::Insert(at, byte) => data.insert(at.index(data.len() + 1), *byte),
            Change::Cut(from, to) => {
                let (from, to) = (from.index(data.len() + 1), to.index(data.len() + 1));
                data.drain(from.min(to)..from.max(to));
            }
            Change::Graft(at, input, from) => {
                let (_, other) = input.get(inputs);
                data.truncate(at.index(data.len() + 1));
                data.extend(&other[from.index(other.len() + 1)..]);
            }
        }
    }
    data
}

fn replay(target: &str, holds: fn(&[u8])) {
    let inputs = inputs(target);
    assert!(inputs.len() >= 10, "fuzz/corpus/{target}: found {}", inputs.len());
    for (path, data) in &inputs {
        assert!(catch_unwind(|| holds(data)).is_ok(), "{target} does not hold for {path}");
    }
    let cases = any::<Index>().prop_flat_map(|input| (Just(input), prop::collection::vec(change(), 1..8)));
    let cases = cases.prop_map(|(input, changes)| changed(input.get(&inputs).1.clone(), &changes, &inputs));
    // Inputs come and go, so a seed would not lead to the same one again: what failed is shown instead.
    let config = Config { cases: 2000, failure_persistence: None, ..Config::default() };
    TestRunner::new(config)
        .run(&cases, |data| {
            holds(&data);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{target}: {failure}"));
}

macro_rules! replay {
    ($($target:ident),*) => {
        $(
            #[test]
            fn $target() {
                replay(stringify!($target), properties::$target::holds);
            }
        )*

        #[test]
        fn every_target_is_replayed() {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
            let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            let targets: BTreeSet<_> = files.map(|path| path.file_stem().unwrap().to_owned()).collect();
            assert_eq!(targets, [$(stringify!($target)),*].map(OsString::from).into());
        }
    };
}

replay!(configuration, request, answer, key, address);
