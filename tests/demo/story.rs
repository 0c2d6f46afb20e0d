//! The story, in six chapters.

use std::time::{Duration, Instant};

use harness::{Options, Redis, Response, Stack, workspace};

use crate::boundary;
use crate::rules::{PER_CLIENT, plugin, policies};
use crate::terminal::{answer, bold, chapter, faint, good, line, out, request, say};

/// How long the limits may take to apply again after an outage.
const RECOVERY: Duration = Duration::from_secs(15);

pub async fn tell() -> Result<(), String> {
    let redis = Redis::is_installed();
    let options = Options {
        policies: policies().to_string(),
        plugin: Some(plugin()),
        redis,
        store_timeout: "500ms",
        concurrency: 2,
        ..Options::default()
    };
    let store = if redis { "in one atomic call to Redis" } else { "in the service's memory" };
    out(&bold(&format!("Weir: exact rate limits for Envoy, each decided {store}")));
    let mut stack = Stack::start(options).await;
    let outcome = chapters(&mut stack, redis).await;
    if outcome.is_err() {
        line("");
        line(&faint("The end of Envoy's log and of the service's:"));
        for log in [stack.envoy.log(), stack.service.log()] {
            let lines: Vec<_> = log.lines().collect();
            lines[lines.len().saturating_sub(15)..].iter().for_each(|text| line(&faint(text)));
        }
    }
    drop(stack);
    outcome?;
    line("");
    line(&good("Every number above was checked. All that was started has been stopped."));
    line("To keep the stack running and try it yourself: make up, and later make down.");
    Ok(())
}

async fn chapters(stack: &mut Stack, redis: bool) -> Result<(), String> {
    chapter("1. What runs");
    cast(stack, redis);

    chapter("2. A request that is allowed");
    allowed(stack).await?;

    chapter("3. The limit is used up");
    refused(stack).await?;

    chapter("4. Another client has a limit of its own");
    let bob = ask(stack, "bob").await;
    claim(bob.status == 200 && remaining(&bob) == Some(PER_CLIENT - 1), "bob starts with the whole limit", &bob)?;

    chapter("5. A burst across the edge of a window");
    boundary::show(stack).await?;

    if redis {
        chapter("6. Redis dies, and comes back");
    } else {
        chapter("6. The service dies, and comes back");
    }
    outage(stack, redis).await?;
    stack.envoy.assert_no_trap();
    Ok(())
}

fn cast(stack: &Stack, redis: bool) {
    let root = workspace().display().to_string();
    let here = |text: &str| text.replace(&root, ".");
    line(&format!("client ──> Envoy with dist/weir_filter.wasm   {}", stack.envoy.url("/")));
    line(&format!("             ├─ upstream                        http://127.0.0.1:{}/", stack.upstream.port()));
    line(&format!("             └─ weir service (dist/weir)        {}", stack.service.url("/v1/check")));
    if redis {
        line(&format!("                  └─ Redis                      {}", stack.redis().url()));
    } else {
        line("                  └─ its own memory, since there is no redis-server here (see make setup)");
    }
    line("");
    say(&here(&format!(
        "Envoy runs {root}/envoy.yaml with free ports and the demo's rules: {PER_CLIENT} requests a minute for each API \
         key, and a path for each of the four algorithms."
    )));
}

async fn allowed(stack: &Stack) -> Result<(), String> {
    let first = ask(stack, "alice").await;
    claim(first.status == 200, "the first request is allowed", &first)?;
    let policy = first.header("ratelimit-policy");
    claim(
        policy.as_deref() == Some(&*format!("\"per-key\";q={PER_CLIENT};w=60")),
        "the answer names the policy",
        &first,
    )?;
    claim(remaining(&first) == Some(PER_CLIENT - 1), "the answer says what is left", &first)
}

async fn refused(stack: &Stack) -> Result<(), String> {
    let url = stack.envoy.url("/orders");
    for left in (0..PER_CLIENT - 1).rev() {
        let response = stack.get("/orders", &[("x-api-key", "alice")]).await;
        claim(response.status == 200 && remaining(&response) == Some(left), "the limit counts down", &response)?;
    }
    say(&format!("{} more requests of alice pass. The next one:", PER_CLIENT - 1));
    request(&url, "alice");
    let response = stack.get("/orders", &[("x-api-key", "alice")]).await;
    answer(&response);
    claim(response.status == 429, "the next request is refused", &response)?;
    claim(remaining(&response) == Some(0), "nothing is left", &response)?;
    let wait = response.header("retry-after").and_then(|seconds| seconds.parse::<u64>().ok());
    claim(wait.is_some_and(|seconds| (1..=60).contains(&seconds)), "the refusal says how long to wait", &response)?;
    let problem = response.header("content-type").is_some_and(|kind| kind.starts_with("application/problem+json"));
    claim(problem && response.json().is_object(), "the body is a problem document", &response)?;
    let seen = stack.upstream.count();
    claim(seen == PER_CLIENT, "the refused request did not reach the upstream", &response)?;
    line("");
    say(&format!("The upstream has seen {seen} requests: a refused one never gets there, and costs no quota."));
    Ok(())
}

async fn outage(stack: &mut Stack, redis: bool) -> Result<(), String> {
    let fallen = if redis {
        stack.redis_mut().kill();
        "Redis"
    } else {
        stack.service.kill();
        "The service"
    };
    let log_before = stack.envoy.log().len();
    say(&format!(
        "{fallen} was killed (kill -9). The rules say failure_mode: open, so requests pass without a limit and without \
         limit fields; even alice's, who was refused above:"
    ));
    let started = Instant::now();
    let during = ask(stack, "alice").await;
    let took = started.elapsed();
    claim(during.status == 200, "without the store, requests pass", &during)?;
    claim(during.all("ratelimit").is_empty(), "without the store, nothing is said about limits", &during)?;
    line(&format!("(no limit fields; answered in {} ms)", took.as_millis()));
    line("");
    say("Nobody has to guess that this happened. Envoy's log:");
    let warning = harness::eventually("a warning in Envoy's log", RECOVERY, async || {
        let log = stack.envoy.log();
        let warning = log.get(log_before..)?.lines().find(|line| line.contains("weir: rule "))?;
        // Envoy puts the time, the thread and the source in front.
        Some(warning.get(warning.find("weir: rule ")?..)?.to_owned())
    })
    .await;
    line(&faint(&warning));

    let started = Instant::now();
    if redis {
        stack.redis_mut().restart().await;
    } else {
        stack.service.restart().await;
    }
    let after = harness::eventually("the limits apply again", RECOVERY, async || {
        let response = stack.get("/orders", &[("x-api-key", "carol")]).await;
        (!response.all("ratelimit").is_empty()).then_some(response)
    })
    .await;
    line("");
    say(&format!(
        "{fallen} was started again. {} ms later limits apply again (counting from zero: this one keeps nothing on disk):",
        started.elapsed().as_millis()
    ));
    request(&stack.envoy.url("/orders"), "carol");
    answer(&after);
    claim(after.status == 200 && remaining(&after) == Some(PER_CLIENT - 1), "carol has the whole limit", &after)
}

/// Shows one request of this client and its answer.
async fn ask(stack: &Stack, key: &str) -> Response {
    request(&stack.envoy.url("/orders"), key);
    let response = stack.get("/orders", &[("x-api-key", key)]).await;
    answer(&response);
    response
}

/// The `r` of the field `RateLimit`.
fn remaining(response: &Response) -> Option<usize> {
    let field = response.header("ratelimit")?;
    field.split(';').find_map(|parameter| parameter.trim().strip_prefix("r=")?.parse().ok())
}

fn claim(holds: bool, what: &str, response: &Response) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("this should hold, but does not: {what}\n{response:#?}")) }
}
