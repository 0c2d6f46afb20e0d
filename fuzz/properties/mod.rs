//! What must hold of the filter for every input: one function a fuzz target, which panics where it does not hold.
//!
//! libFuzzer calls them (`fuzz_targets/`), and so does an ordinary test with the committed inputs and variants of them
//! (`filter/tests/fuzz_corpus.rs`), which includes this folder as its own module. So it uses nothing but what the
//! filter's tests have: the crates that the filter links, `arbitrary` and `sfv`.
//!
//! Each property is stated from outside: by an oracle that is not the code under test (std's parsers, a decoder, the
//! JSON of an answer read by hand), or by a second way to the same result.

use arbitrary::{Result, Unstructured};

mod address;
mod answer;
mod configuration;
mod exchange;
mod key;
mod request;
mod shape;

/// A property by its name, which is that of its fuzz target and of its folders in `corpus/` and `regressions/`.
pub type Property = (&'static str, fn(&[u8]));

/// All of them.
pub const ALL: [Property; 5] = [
    ("configuration", configuration::holds),
    ("request", request::holds),
    ("answer", answer::holds),
    ("key", key::holds),
    ("address", address::holds),
];

/// Runs the property of this name.
pub fn holds(name: &str, data: &[u8]) {
    let (_, property) = ALL.iter().find(|(known, _)| *known == name).expect("a property of that name");
    property(data);
}

/// Bytes that `read` makes an input of: few of any kind, more often some of the given pieces.
fn bytes(u: &mut Unstructured<'_>, pieces: &[&[u8]]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    for _ in 0..u.int_in_range(0..=3)? {
        match u.int_in_range(0..=7)? {
            0 => bytes.push(u.arbitrary()?),
            1 => {
                let piece = *u.choose(&[b"a".as_slice(), b" ", b"%", b"=", b",", b"\"", b"\r\n", b"\0", b"\xff"])?;
                bytes.extend(piece);
            }
            2 => bytes.extend(vec![u.arbitrary::<u8>()?; usize::from(u.arbitrary::<u8>()?)]),
            _ => bytes.extend(*u.choose(pieces)?),
        }
    }
    Ok(bytes)
}
