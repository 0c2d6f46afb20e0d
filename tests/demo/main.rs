//! `make demo` tells a story with real requests; `make up` and `make down` keep its stack running in the background.
//!
//! The story checks every number it prints: if one is not as it says, it ends with 1.

mod background;
mod boundary;
mod rules;
mod story;
mod terminal;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let command = std::env::args().nth(1);
    let outcome = match command.as_deref() {
        None => tokio::select! {
            outcome = story::tell() => outcome,
            // Dropping the story stops what it started.
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        },
        Some("up") => background::up().await,
        Some("serve") => background::serve().await,
        Some("down") => background::down().await,
        Some(other) => Err(format!("unknown command {other:?}: up, down, or nothing for the demo")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", terminal::bad(&error));
            ExitCode::FAILURE
        }
    }
}
