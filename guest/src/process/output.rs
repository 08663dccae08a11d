//! The retained output of a process in one answer: one stream after the other.

use crate::process::log::Stream;
use crate::process::Process;
use crate::protocol::fault::{Fault, Outcome};
use crate::protocol::frame::{self, kind};
use json::object;
use std::io::Write;

const OUTPUT_BYTES: usize = 128 * 1024;

/// Sends one stream after the other, and joins the pieces of each.
pub fn send(process: &Process, bytes_max: Option<u64>, writer: &mut impl Write) -> Outcome<()> {
    let (end, last, bytes) = {
        let state = process.state();
        (state.log.end(), state.end_told, state.log.bytes() as u64)
    };
    if bytes_max.map_or(false, |most| bytes > most) {
        return Err(Fault::too_large(format!("process '{}' has {} bytes of output", process.id, bytes)));
    }
    frame::write_line(writer, &object([("ok", true.into())]))?;
    send_frames(process, end, writer)?;
    process.state().taken |= last;
    Ok(())
}

pub fn send_frames(process: &Process, end: u64, writer: &mut impl Write) -> Outcome<()> {
    for (stream, kind) in [(Stream::Stdout, kind::STDOUT), (Stream::Stderr, kind::STDERR)] {
        let mut cursor = 0;
        loop {
            let gathered = process.state().log.gather(stream, cursor, end, OUTPUT_BYTES);
            let (offset, reached, data) = match gathered {
                Some(gathered) => gathered,
                None => break,
            };
            let mut frame = Vec::new();
            frame::push(&mut frame, kind, &offset.to_be_bytes(), &data);
            writer.write_all(&frame)?;
            cursor = reached;
        }
    }
    let truncated = process.state().log.truncated();
    Ok(frame::write_value(writer, kind::END, &object([("truncated", truncated.into())]))?)
}
