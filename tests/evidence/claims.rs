//! What the page says in words, held against the numbers: a page whose words do not follow from them is an error.

use crate::Evidence;
use crate::boundary;
use crate::limiter::Limiter;
use crate::page;
use crate::precision::ADVERSARY;
use crate::traffic::LIMIT;

/// The claims that do not hold.
pub fn broken(evidence: &Evidence) -> Vec<String> {
    let mut broken = Vec::new();
    let mut claim = |holds: bool, what: String| {
        if !holds {
            broken.push(what);
        }
    };

    for admitted in &evidence.boundary {
        let expected = match admitted.limiter {
            Limiter::FixedWindow => (40, 40, 80),
            Limiter::Log => (40, 0, 40),
            Limiter::Counter => (40, 1, 78),
            Limiter::Bucket => (40, 2, 79),
            Limiter::SmallBucket => (4, 2, 43),
        };
        let measured = (admitted.at(boundary::FIRST_MS), admitted.at(boundary::SECOND_MS), admitted.largest());
        claim(
            measured == expected,
            format!("(a) {:?}: {measured:?} (first volley, second, window) is {expected:?}", admitted.limiter),
        );
    }

    for row in &evidence.precision.rows {
        for limiter in Limiter::ALL {
            let outcome = row.of(limiter);
            claim(
                outcome.largest as u64 <= limiter.bound(LIMIT),
                format!("(b) {limiter:?} keeps its bound on {}: {}", row.name, outcome.largest),
            );
        }
        let log = row.of(Limiter::Log);
        claim(log.against_rule.total() == 0, format!("(c) the log is never wrong on {}", row.name));
        let counter = row.of(Limiter::Counter);
        let accounted = counter.admitted + counter.against_log.refused == log.admitted + counter.against_log.admitted;
        claim(accounted, format!("(c) the verdicts on {} add up", row.name));
    }
    let row = |name: &str| evidence.precision.rows.iter().find(|row| row.name == name).expect("a traffic of this name");
    let agreement = |name: &str| page::agreement(row(name), Limiter::Counter);
    for name in ["Poisson, load 0.8", "light clients"] {
        claim(agreement(name) >= page::ABOUT_99, format!("(c) about 99 % holds for {name}"));
    }
    for name in ["Poisson, load 1", "Poisson, load 2", "saturating", ADVERSARY] {
        claim(agreement(name) < page::ABOUT_99, format!("(c) about 99 % does not hold for {name}"));
    }
    for name in ["Poisson, load 0.8", "Poisson, load 1", "Poisson, load 2", "diurnal", "many clients", "light clients"]
    {
        let off = (page::amount(row(name)) - 100.0).abs();
        claim(off < 2.0, format!("(c) the counter admits about as many as the log of {name}"));
    }
    claim(page::amount(row(ADVERSARY)) > 150.0, "(c) the adversary gets much more from the counter".into());
    for (attack, limiter) in evidence.precision.attacks.iter().zip(Limiter::ALL) {
        // The search need not find the very worst, but what the page calls nearly all of it.
        let near = attack.largest as u64 * 100 >= limiter.bound(LIMIT) * 97;
        claim(near, format!("(b) the adversary of {limiter:?} comes near the bound: {}", attack.largest));
    }
    for (attack, limiter) in evidence.precision.short_attacks.iter().zip(Limiter::ALL) {
        let bound = limiter.short_bound(LIMIT);
        let near = attack.largest as u64 <= bound && attack.largest as u64 * 100 >= bound * 90;
        claim(near, format!("(b) the adversary of {limiter:?} in a tenth of a window: {} of {bound}", attack.largest));
    }

    let sizes = &evidence.cost.sizes;
    let (first, last) = (&sizes[0], &sizes[sizes.len() - 1]);
    for (column, limiter) in crate::cost::LIMITERS.into_iter().enumerate() {
        let (few, many) = (first.bytes[column], last.bytes[column]);
        if limiter == Limiter::Log {
            let each = many as f64 / last.requests as f64;
            claim((8.0..16.0).contains(&each), format!("(d) the log takes 8 to 16 bytes a request: {each}"));
        } else {
            claim(few == many && many <= 120, format!("(d) {limiter:?} takes the same, at most 120 bytes: {many}"));
        }
    }
    let pace = |limiter| evidence.smoothness.iter().find(|pace| pace.limiter == limiter).expect("each limiter");
    let (fixed, bucket) = (pace(Limiter::FixedWindow).gap_ms(1.0), pace(Limiter::SmallBucket).gap_ms(1.0));
    claim(fixed > 10.0 * bucket, format!("(f) only a bucket lets through evenly: gaps of {fixed} and {bucket} ms"));
    for name in ["Poisson, load 0.8", "Poisson, load 1", "Poisson, load 2", "bursty", "diurnal", "many clients"] {
        let largest = |limiter| row(name).of(limiter).largest;
        let nearer = largest(Limiter::Counter) < largest(Limiter::FixedWindow);
        claim(nearer, format!("(b) the counter stays nearer to the limit than the fixed window on {name}"));
    }
    claim(evidence.took.as_secs() < 300, format!("it takes less than five minutes: {:?}", evidence.took));

    // Hundreds of times the requests: were a decision linear in them, it would take as many times as long.
    let (some, many) = (&evidence.cost.costs[1], &evidence.cost.costs[4]);
    claim(
        many.admitted_us < 4.0 * some.admitted_us,
        format!("(e) the log's time is not linear: {} µs", many.admitted_us),
    );
    broken
}
