//! Replaces what a fork must not share with its source: the state of the kernel's random numbers, and the clients that come back to the
//! source alone.

use crate::process::pause::Pauses;
use crate::process::table::Table;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::request::Request;
use json::{object, Value};
use std::fs::OpenOptions;
use std::io::Write;

const SEED_BYTES_MAX: usize = 4096;

/// Mixes a seed into the kernel's generator; the answer lists the seed as failed when the sandbox has no right to reseed. In a fork no
/// process waits for clients that have paused or were cut off.
pub fn configure(table: &Table, request: &Request) -> Outcome<Value> {
    let seed = hex(request.text("seed")?)?;
    if request.flag("fork")? {
        for process in table.all() {
            process.state().change_pauses(|pauses| *pauses = Pauses::default());
        }
    }
    // Without the right to reseed at once, writing still mixes the bytes into the pool (random(4)).
    let write = || OpenOptions::new().write(true).open("/dev/urandom").and_then(|mut file| file.write_all(&seed));
    let seeded = sys::add_entropy(&seed).or_else(|_| write());
    let failed = seeded.err().map(|error| ("seed", Value::Text(error.to_string())));
    Ok(object([("ok", true.into()), ("failed", object(failed))]))
}

fn hex(text: &str) -> Outcome<Vec<u8>> {
    let wrong = || Fault::invalid(format!("seed: must be up to {} bytes in hex", SEED_BYTES_MAX));
    if text.len() % 2 != 0 || text.len() > 2 * SEED_BYTES_MAX || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| wrong());
    (0..text.len()).step_by(2).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_hex() {
        assert_eq!(hex("00fF10").unwrap(), [0, 255, 16]);
        for text in ["0", "zz", "é0", "+1"] {
            assert!(hex(text).is_err(), "{}", text);
        }
    }
}
