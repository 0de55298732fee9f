//! Tells the crate which revision of the repository it is built from, for replay files.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=TANDEM_REVISION");
    println!("cargo:rerun-if-changed=build.rs");
    // The log of HEAD changes with every commit and checkout.
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
        && Path::new(&log).exists()
    {
        println!("cargo:rerun-if-changed={log}");
    }
    let given = std::env::var("TANDEM_REVISION").ok().filter(|revision| !revision.is_empty());
    let revision = given.or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo:rustc-env=TANDEM_REVISION={}", revision.as_deref().unwrap_or("unknown"));
}

/// What git says in one line; nothing if there is no git or no repository.
fn git(words: &[&str]) -> Option<String> {
    let output = Command::new("git").args(words).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let line = text.lines().next()?.trim();
    (output.status.success() && !line.is_empty()).then(|| line.to_string())
}
