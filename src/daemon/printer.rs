//! Where a command's results go: to the terminal, or over the socket to who typed it.

use std::io::{Read, Seek, Write};
use std::path::Path;

use tokio::sync::mpsc;

use super::protocol::{self, Frame};
use crate::error::{Result, Told, io};
use crate::text::printable;

/// Takes what a command prints. Clones print to the same place.
#[derive(Debug, Clone)]
pub(crate) struct Printer {
    caller: Option<mpsc::UnboundedSender<Frame>>,
}

impl Printer {
    /// Prints to this process's standard output.
    pub(crate) fn here() -> Printer {
        Printer { caller: None }
    }

    /// Prints to a caller, which gets these frames.
    pub(super) fn to_caller() -> (Printer, mpsc::UnboundedReceiver<Frame>) {
        let (caller, frames) = mpsc::unbounded_channel();
        (Printer { caller: Some(caller) }, frames)
    }

    /// Prints a result for people: [`printable`].
    ///
    /// # Errors
    /// `Io`. Who closes the pipe early has read enough: that is none.
    pub(crate) fn print(&self, text: &str) -> Result<()> {
        self.data(&printable(text))
    }

    /// Prints a result for programs, JSON or CSV, as it is.
    ///
    /// # Errors
    /// As [`Printer::print`].
    pub(crate) fn data(&self, text: &str) -> Result<()> {
        if self.caller.is_some() {
            protocol::parts(text).for_each(|part| self.frame(Frame::Stdout(part.to_owned())));
            return Ok(());
        }
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|e| io("write to", Path::new("standard output"), e)),
        }
    }

    /// Prints what a file holds from its beginning on, as it is, to this process's standard output.
    ///
    /// # Errors
    /// As [`Printer::print`]; and where it cannot be read.
    pub(crate) fn copy(from: &mut (impl Read + Seek)) -> Result<()> {
        let mut out = std::io::stdout().lock();
        let copied = from.rewind().and_then(|()| std::io::copy(from, &mut out));
        match copied.and_then(|_| out.flush()) {
            Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
            done => done.map_err(|e| io("write to", Path::new("standard output"), e)),
        }
    }

    pub(super) fn frame(&self, frame: Frame) {
        if let Some(caller) = &self.caller {
            // A caller that has gone reads nothing.
            let _ = caller.send(frame);
        }
    }

    /// Tells the caller how its command has ended.
    pub(super) fn end(&self, done: Result<u8>) {
        self.frame(done.map_or_else(|error| Frame::Failed(Told::of(&error)), Frame::Exit));
    }
}
