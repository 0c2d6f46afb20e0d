//! Keeps a log readable while something is broken: at most one line a second, which says how many were left out.

/// One kind of line.
#[derive(Debug, Default)]
pub struct Throttle {
    last_s: Option<u64>,
    left_out: u64,
}

impl Throttle {
    /// `Some(n)` if a line may be written now, n having been left out since the last one. `now_s` is any clock's
    /// whole second; one that steps back only lets a line through.
    pub fn admit(&mut self, now_s: u64) -> Option<u64> {
        if self.last_s == Some(now_s) {
            self.left_out = self.left_out.saturating_add(1);
            return None;
        }
        self.last_s = Some(now_s);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn one_line_a_second_and_a_count_of_the_rest() {
        let mut throttle = Throttle::default();
        let seen: Vec<_> = [7, 7, 7, 8, 8, 6].iter().map(|now| throttle.admit(*now)).collect();
        assert_eq!(seen, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
