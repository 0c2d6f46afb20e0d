//! What must hold of the filter for every input: one `holds` a fuzz target, which panics where it does not.
//!
//! libFuzzer calls them (`fuzz_targets/`), and so does an ordinary test with the committed inputs and variants of them
//! (`filter/tests/fuzz_corpus.rs`), which includes this folder as its own module. So it uses nothing but what the
//! filter's tests have: the crates that the filter links, `arbitrary` and `sfv`.
//!
//! Each property is stated from outside: by an oracle that is not the code under test (std's parsers, a decoder, the
//! JSON of an answer read by hand), or by a second way to the same result.

use arbitrary::{Result, Unstructured};

pub mod address;
pub mod answer;
pub mod configuration;
mod exchange;
pub mod key;
pub mod request;
mod shape;

/// Bytes for a part of an input: few of any kind, more often some of the given pieces.
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
