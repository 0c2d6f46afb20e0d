//! The randomness of the traffics: SplitMix64, written out here so that a seed means the same numbers with every
//! version of every library.
//!
//! Sebastiano Vigna's public-domain generator, <https://prng.di.unimi.it/splitmix64.c>.

/// A stream of random numbers that its seed determines.
pub struct Random {
    state: u64,
}

impl Random {
    /// One stream for each `purpose`, so that a change to one traffic leaves the others as they were.
    pub fn new(seed: u64, purpose: &str) -> Self {
        // FNV-1a of the name.
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { state: seed ^ name }
    }

    pub fn word(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in (0, 1]: never 0, so that its logarithm is finite.
    pub fn unit(&mut self) -> f64 {
        ((self.word() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Exponentially distributed with this mean: the gaps of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * self.unit().ln()
    }

    /// Between the two, evenly in the logarithm: as many between 1 and 10 as between 10 and 100.
    pub fn magnitude(&mut self, low: f64, high: f64) -> f64 {
        low * (high / low).powf(self.unit())
    }
}

#[cfg(test)]
mod tests {
    use super::Random;

    /// The first numbers of the published generator for state 0.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random { state: 0 };
        let numbers = [random.word(), random.word(), random.word()];
        assert_eq!(numbers, [0xe220_a839_7b1d_cdaf, 0x6e78_9e6a_a1b9_65f4, 0x06c4_5d18_8009_454f]);
    }

    #[test]
    fn exponential_numbers_have_their_mean() {
        let mut random = Random::new(1, "test");
        let sum: f64 = (0..100_000).map(|_| random.exponential(3.0)).sum();
        assert!((sum / 100_000.0 - 3.0).abs() < 0.05, "{sum}");
    }
}
