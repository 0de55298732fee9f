//! The command line of the testbed.

fn main() {}
