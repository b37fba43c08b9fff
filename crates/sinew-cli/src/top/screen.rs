//! Takes over the terminal.
//!
//! Guarantee: the terminal is restored when the screen is dropped, and before a panic is reported.

use super::line::{Line, Style};
use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::style::{Attribute, Color, Print, SetAttribute, SetForegroundColor};
use crossterm::terminal::{
    self, BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, IsTerminal, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the terminal has to be restored.
static TAKEN: AtomicBool = AtomicBool::new(false);

pub(super) struct Screen {
    colours: bool,
}

impl Screen {
    pub(super) fn take() -> io::Result<Screen> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            // Without this, the panic message would vanish with the alternate screen.
            std::panic::set_hook(Box::new(move |info| {
                give_back();
                before(info);
            }));
        });
        terminal::enable_raw_mode()?;
        TAKEN.store(true, Ordering::SeqCst);
        let screen =
            Screen { colours: std::env::var_os("NO_COLOR").is_none_or(|no| no.is_empty()) };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// The number of columns and lines.
    pub(super) fn size() -> (usize, usize) {
        terminal::size().map_or((80, 24), |(width, height)| (width.into(), height.into()))
    }

    /// Shows these lines at once, as many as the screen has.
    pub(super) fn show(&self, lines: &[Line]) -> io::Result<()> {
        let mut out = Vec::new();
        queue!(out, BeginSynchronizedUpdate)?;
        for (number, line) in lines.iter().enumerate() {
            let Ok(row) = u16::try_from(number) else { break };
            // Clear first: after a text as wide as the screen, clearing would erase its last
            // character.
            queue!(out, MoveTo(0, row), Clear(ClearType::CurrentLine))?;
            self.put(&mut out, line)?;
        }
        queue!(out, EndSynchronizedUpdate)?;
        let mut stdout = io::stdout().lock();
        stdout.write_all(&out)?;
        stdout.flush()
    }

    /// Waits for keys, for at most `limit`. Returns false if the terminal is gone.
    pub(super) fn wait_for_keys(&self, limit: Duration) -> bool {
        let input = io::stdin();
        if !input.is_terminal() {
            // crossterm reads the keys from the terminal itself, so standard input shows none.
            std::thread::sleep(limit);
            return true;
        }
        let mut polled = [PollFd::new(&input, PollFlags::IN)];
        let limit = Timespec::try_from(limit).ok();
        // A signal may interrupt the wait.
        let _ = poll(&mut polled, limit.as_ref());
        !polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
    }

    fn put(&self, out: &mut Vec<u8>, line: &Line) -> io::Result<()> {
        for (style, text) in line.pieces() {
            if line.chosen {
                queue!(out, SetAttribute(Attribute::Reverse))?;
            }
            match style {
                Style::Plain => {}
                Style::Bold => queue!(out, SetAttribute(Attribute::Bold))?,
                Style::Soft if !line.chosen => queue!(out, SetAttribute(Attribute::Dim))?,
                Style::Soft => {}
                _ if !self.colours => {}
                Style::Accent => queue!(out, SetForegroundColor(Color::Cyan))?,
                Style::Good => queue!(out, SetForegroundColor(Color::Green))?,
                Style::Warning => queue!(out, SetForegroundColor(Color::Yellow))?,
                Style::Bad => queue!(out, SetForegroundColor(Color::Red))?,
            }
            queue!(out, Print(text), SetAttribute(Attribute::Reset))?;
        }
        Ok(())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Restores the terminal if a [`Screen`] has taken it over.
pub(super) fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        // Errors are ignored: the terminal may be gone.
        let _ = execute!(io::stdout(), Show, LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}
