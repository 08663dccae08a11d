//! Replaces what a fork must not share with its source, and what a restore leaves undone.

use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::json::{object, Value};
use crate::protocol::request::Request;
use crate::sys;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;

const SEED_BYTES_MAX: usize = 4096;

/// Sets each field as far as the sandbox's rights allow; the answer names the fields that failed.
pub fn configure(request: &Request) -> Outcome<Value> {
    let hostname = request.optional_text("hostname")?;
    if hostname.map_or(false, |name| name.is_empty() || name.len() > 64) {
        return Err(Fault::invalid("hostname: must be 1 to 64 bytes"));
    }
    let seed = request.optional_text("seed")?.map(hex).transpose()?;
    let loopback = request.flag("loopback")?;

    let mut failed = BTreeMap::new();
    let mut note = |field: &str, result: std::io::Result<()>| {
        if let Err(error) = result {
            failed.insert(field.to_string(), Value::Text(error.to_string()));
        }
    };
    if let Some(name) = hostname {
        note("hostname", sys::set_hostname(name));
    }
    if let Some(seed) = seed {
        // Without the right to reseed at once, writing still mixes the bytes into the pool (random(4)).
        let added = sys::add_entropy(&seed);
        let write = || OpenOptions::new().write(true).open("/dev/urandom").and_then(|mut file| file.write_all(&seed));
        note("seed", added.or_else(|_| write()));
    }
    if loopback {
        note("loopback", sys::interface_up("lo"));
    }
    Ok(object([("ok", true.into()), ("failed", Value::Object(failed))]))
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
