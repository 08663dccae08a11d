//! Input of an attached client on its way to the process.

use super::Client;
use crate::process::{Process, State};
use crate::protocol::fault::{Fault, Outcome};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::sync::{Arc, MutexGuard};

const END_OF_TRANSMISSION: u8 = 4;

impl<'a> Client<'a> {
    /// Standard input, when something waits to be written to it.
    pub fn open_input(&mut self) -> Outcome<Option<Arc<File>>> {
        if self.input.is_empty() {
            return Ok(None);
        }
        let input = self.process.state().input.clone();
        if input.is_none() {
            self.discard_without_input()?;
        }
        Ok(input)
    }

    /// Holds the lock while it writes, so that the number of taken bytes is exact when the client comes back on another
    /// connection.
    pub fn feed(&mut self, mut input: &File) -> Outcome<()> {
        let mut state = self.lock_input()?;
        match input.write(&self.input) {
            Ok(count) => self.take(&mut state, count),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            // The pipe has no reader: the rest is lost, as in a pipe of a shell.
            Err(_) => self.take(&mut state, self.input.len()),
        }
        drop(state);
        self.finish_input()
    }

    pub fn discard_without_input(&mut self) -> Outcome<()> {
        let mut state = self.lock_input()?;
        if state.input.is_none() {
            self.take(&mut state, self.input.len());
        }
        Ok(())
    }

    pub fn take(&mut self, state: &mut State, count: usize) {
        self.input.drain(..count);
        self.taken += count as u64;
        state.stdin_cursors.take(self.generation, count);
    }

    /// End of input: closes the pipe, or types control-D on a terminal.
    pub fn finish_input(&mut self) -> Outcome<()> {
        if !self.input_ended || !self.input.is_empty() {
            return Ok(());
        }
        let mut state = self.lock_input()?;
        state.stdin_cursors.end(self.generation);
        if self.process.has_terminal {
            if let Some(terminal) = &state.input {
                let _ = (&**terminal).write(&[END_OF_TRANSMISSION]);
            }
        } else {
            state.input = None;
        }
        Ok(())
    }

    /// Fails when the client has attached again on another connection.
    pub fn lock_input(&self) -> Outcome<MutexGuard<'a, State>> {
        let process: &'a Process = self.process;
        let state = process.state();
        if !state.stdin_cursors.holds(self.generation) {
            return Err(Fault::conflict("the client goes on on another connection"));
        }
        Ok(state)
    }
}
