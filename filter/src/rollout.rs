//! A rule for a share of its clients.

use sha2::{Digest, Sha256};

/// The share of keys that a rule limits, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percent(pub u8);

impl Percent {
    /// Everyone.
    pub const ALL: Self = Self(100);

    /// Whether a key is among them. It depends on rule and key alone, so every worker and proxy decides alike, and who
    /// is in at one share is in at every larger one. Rules choose independently of each other.
    pub fn holds(self, rule: &str, key: &str) -> bool {
        if self == Self::ALL {
            return true;
        }
        // A name of a rule holds no line break.
        let digest = Sha256::digest(format!("{rule}\n{key}"));
        let point = digest.first_chunk::<4>().copied().map_or(0, u32::from_be_bytes);
        u64::from(point) * 100 < u64::from(self.0) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    fn held(percent: u8, rule: &str) -> Vec<bool> {
        (0..10_000).map(|key| Percent(percent).holds(rule, &format!("org_{key}"))).collect()
    }

    #[test]
    fn a_share_of_the_keys_is_held_and_grows() {
        let mut before = held(0, "api");
        assert!(!before.contains(&true));
        for percent in [1, 10, 50, 99, 100] {
            let now = held(percent, "api");
            assert!(before.iter().zip(&now).all(|(before, now)| !before || *now), "{percent}");
            // 10 000 draws: four standard deviations are at most 200.
            let count = now.iter().filter(|held| **held).count();
            assert!(count.abs_diff(usize::from(percent) * 100) <= 200, "{percent}: {count}");
            before = now;
        }
        assert!(!before.contains(&false));
    }

    #[test]
    fn rules_choose_independently() {
        let both = held(50, "a").iter().zip(&held(50, "b")).filter(|(a, b)| **a && **b).count();
        assert!(both.abs_diff(2500) <= 200, "{both}");
    }
}
