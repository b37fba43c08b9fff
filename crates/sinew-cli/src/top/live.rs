//! The live view: handles keys, and redraws the screen.

use super::fetch::Client;
use super::history::History;
use super::layout;
use super::line::{Line, Style};
use super::screen::{self, Screen};
use super::target::{Target, Wish};
use super::view::View;
use super::{SORTS, look};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use sinew::signal::{Signal, Signals};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

/// How many fibers can be scrolled through.
const ROWS: usize = 1000;
/// How often the loop checks for signals.
const GLANCE: Duration = Duration::from_millis(50);
/// How long the loop may take to notice a signal.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request for the inquirer thread, so that keys need not wait for the server.
enum Question {
    Fibers(Wish),
    Backtrace(u64, bool),
}

enum Answer {
    Fibers(Wish, Box<io::Result<View>>),
    Backtrace(u64, io::Result<String>),
}

struct Live {
    wish: Wish,
    view: View,
    history: History,
    interval: Duration,
    /// When to send the next request; `None` while the view waits for an answer or is paused.
    due: Option<Instant>,
    paused: bool,
    problem: Option<String>,
    chosen: usize,
    scrolled: usize,
    /// The filter while it is being typed.
    typed: Option<String>,
    backtrace: Option<Backtrace>,
}

struct Backtrace {
    id: u64,
    full: bool,
    lines: Vec<String>,
    scrolled: usize,
}

/// The consequence of a key, besides a change of the view.
enum Step {
    Stay,
    Quit,
    Ask(Question),
}

pub(super) fn run(
    (client, target): (&Client, &Target),
    mut wish: Wish,
    first: View,
    interval: Duration,
) -> io::Result<()> {
    wish.limit = ROWS;
    // By default, a signal would end the process without restoring the terminal.
    let ending = end_with_signal(Signals::new([Signal::INT, Signal::TERM, Signal::HUP])?);
    let (questions, answers) = inquirer(client.clone(), target.clone());
    let mut live = Live::new(wish, first, interval);
    let screen = Screen::take()?;
    let mut is_drawn = false;
    while !ending.load(Ordering::Relaxed) {
        if live.due.is_some_and(|due| due <= Instant::now()) {
            live.due = None;
            // If the inquirer has ended, `try_recv` below notices.
            let _ = questions.send(Question::Fibers(live.wish.clone()));
        }
        if !is_drawn {
            screen.show(&live.lines(target))?;
            is_drawn = true;
        }
        let until_due =
            live.due.map_or(GLANCE, |due| due.saturating_duration_since(Instant::now()));
        if !screen.wait_for_keys(until_due.min(GLANCE)) {
            return Ok(());
        }
        // Handle all keys before drawing again.
        while event::poll(Duration::ZERO)? {
            is_drawn = false;
            match live.follow(&event::read()?) {
                Step::Quit => return Ok(()),
                Step::Ask(question) => drop(questions.send(question)),
                Step::Stay => {}
            }
        }
        loop {
            match answers.try_recv() {
                Ok(answer) => {
                    live.take(answer);
                    is_drawn = false;
                }
                Err(TryRecvError::Empty) => break,
                // The inquirer has panicked. The panic hook has reported it on the restored screen.
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("the thread that asks the server has ended"));
                }
            }
        }
    }
    Ok(())
}

/// Ends the view when a signal comes. Ends the process if the view does not end in time: a read
/// from a terminal that has just gone away may never return.
fn end_with_signal(signals: Signals) -> Arc<AtomicBool> {
    let ending = Arc::new(AtomicBool::new(false));
    let told = ending.clone();
    std::thread::spawn(move || {
        let signal = signals.recv();
        told.store(true, Ordering::Relaxed);
        std::thread::sleep(PATIENCE);
        screen::give_back();
        std::process::exit(128 + signal.as_raw());
    });
    ending
}

/// Starts the thread that sends requests to the server.
fn inquirer(client: Client, target: Target) -> (Sender<Question>, Receiver<Answer>) {
    let (questions, asked) = mpsc::channel();
    let (answer, answers) = mpsc::channel();
    std::thread::spawn(move || {
        for question in asked {
            let answered = answer.send(match question {
                Question::Fibers(wish) => {
                    let view = Box::new(look(&client, &target, &wish));
                    Answer::Fibers(wish, view)
                }
                Question::Backtrace(id, full) => {
                    Answer::Backtrace(id, client.fetch(&target.backtrace(id, full)))
                }
            });
            if answered.is_err() {
                return;
            }
        }
    });
    (questions, answers)
}

impl Live {
    fn new(wish: Wish, view: View, interval: Duration) -> Live {
        let mut history = History::default();
        history.add(&view);
        Live {
            wish,
            view,
            history,
            interval,
            // Rates need two views, so the second request follows soon.
            due: Some(Instant::now() + interval.min(Duration::from_millis(300))),
            paused: false,
            problem: None,
            chosen: 0,
            scrolled: 0,
            typed: None,
            backtrace: None,
        }
    }

    fn take(&mut self, answer: Answer) {
        match answer {
            Answer::Fibers(wish, result) => {
                let next = Instant::now() + self.interval;
                // If the user has changed the query meanwhile, ask again at once.
                let again = wish != self.wish;
                self.due = if again { Some(Instant::now()) } else { Some(next) };
                match *result {
                    Ok(view) => {
                        self.history.add(&view);
                        self.view = view;
                        self.problem = None;
                    }
                    Err(error) => self.problem = Some(error.to_string()),
                }
                if self.paused && !again {
                    self.due = None;
                }
            }
            Answer::Backtrace(id, result) => {
                if let Some(backtrace) = self.backtrace.as_mut().filter(|shown| shown.id == id) {
                    let text = result.unwrap_or_else(|error| error.to_string());
                    backtrace.lines = text.lines().map(str::to_owned).collect();
                }
            }
        }
        self.chosen = self.chosen.min(self.view.fibers.len().saturating_sub(1));
    }

    /// Makes the next request due at once. If the view waits for an answer, the request follows it.
    fn ask_soon(&mut self) {
        if self.due.is_some() || self.paused {
            self.due = Some(Instant::now());
        }
    }

    fn follow(&mut self, event: &Event) -> Step {
        let Event::Key(key) = event else { return Step::Stay };
        if key.kind == KeyEventKind::Release {
            return Step::Stay;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            return Step::Quit;
        }
        if self.typed.is_some() {
            self.type_filter(key);
            return Step::Stay;
        }
        match self.backtrace {
            Some(_) => self.follow_in_backtrace(key),
            None => self.follow_in_table(key),
        }
    }

    fn type_filter(&mut self, key: &KeyEvent) {
        let Some(typed) = &mut self.typed else { return };
        match key.code {
            KeyCode::Enter => self.typed = None,
            KeyCode::Esc => {
                typed.clear();
                self.wish.filter.clear();
                self.typed = None;
            }
            KeyCode::Backspace => drop(typed.pop()),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => typed.clear(),
            KeyCode::Char(char) if !key.modifiers.contains(KeyModifiers::CONTROL) => {
                typed.push(char);
            }
            _ => return,
        }
        if let Some(typed) = &self.typed {
            self.wish.filter.clone_from(typed);
        }
        (self.chosen, self.scrolled) = (0, 0);
        self.ask_soon();
    }

    fn follow_in_table(&mut self, key: &KeyEvent) -> Step {
        let last = self.view.fibers.len().saturating_sub(1);
        let page = Screen::size().1.saturating_sub(8).max(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Step::Quit,
            KeyCode::Char('s') => {
                let at = SORTS.iter().position(|sort| *sort == self.wish.sort);
                let next = at.map_or(0, |at| (at + 1) % SORTS.len());
                self.sort_by(SORTS[next].into());
            }
            KeyCode::Char('r') => {
                let sort = match self.wish.sort.strip_prefix('-') {
                    Some(column) => column.to_owned(),
                    None => format!("-{}", self.wish.sort),
                };
                self.sort_by(sort);
            }
            KeyCode::Char('/') => self.typed = Some(self.wish.filter.clone()),
            KeyCode::Char('p' | ' ') => {
                self.paused = !self.paused;
                self.due = (!self.paused).then(Instant::now);
            }
            KeyCode::Up | KeyCode::Char('k') => self.chosen = self.chosen.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.chosen = (self.chosen + 1).min(last),
            KeyCode::PageUp => self.chosen = self.chosen.saturating_sub(page),
            KeyCode::PageDown => self.chosen = (self.chosen + page).min(last),
            KeyCode::Home => self.chosen = 0,
            KeyCode::End => self.chosen = last,
            KeyCode::Enter => {
                if let Some(fiber) = self.view.fibers.get(self.chosen) {
                    return self.open(fiber.id, false);
                }
            }
            _ => {}
        }
        Step::Stay
    }

    fn sort_by(&mut self, sort: String) {
        self.wish.sort = sort;
        (self.chosen, self.scrolled) = (0, 0);
        self.ask_soon();
    }

    fn open(&mut self, id: u64, full: bool) -> Step {
        let lines = vec!["…".into()];
        self.backtrace = Some(Backtrace { id, full, lines, scrolled: 0 });
        Step::Ask(Question::Backtrace(id, full))
    }

    fn follow_in_backtrace(&mut self, key: &KeyEvent) -> Step {
        let Some(shown) = &mut self.backtrace else { return Step::Stay };
        let page = Screen::size().1.saturating_sub(3).max(1);
        let last = shown.lines.len().saturating_sub(1);
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc | KeyCode::Backspace | KeyCode::Left => {
                self.backtrace = None;
            }
            KeyCode::Char('f') => {
                let (id, full) = (shown.id, !shown.full);
                return self.open(id, full);
            }
            KeyCode::Enter => {
                let (id, full) = (shown.id, shown.full);
                return self.open(id, full);
            }
            KeyCode::Up | KeyCode::Char('k') => shown.scrolled = shown.scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => shown.scrolled = (shown.scrolled + 1).min(last),
            KeyCode::PageUp => shown.scrolled = shown.scrolled.saturating_sub(page),
            KeyCode::PageDown => shown.scrolled = (shown.scrolled + page).min(last),
            KeyCode::Home => shown.scrolled = 0,
            KeyCode::End => shown.scrolled = last,
            _ => {}
        }
        Step::Stay
    }

    /// The lines of the whole screen.
    fn lines(&mut self, target: &Target) -> Vec<Line> {
        let (width, height) = Screen::size();
        let mut lines = match &self.backtrace {
            Some(shown) => shown.draw(width, height),
            None => self.table(target, width, height),
        };
        lines.truncate(height.saturating_sub(1));
        lines.resize_with(height.saturating_sub(1), || Line::new(width));
        lines.push(self.bottom(width));
        lines
    }

    fn table(&mut self, target: &Target, width: usize, height: usize) -> Vec<Line> {
        let mut lines = layout::totals(&self.view, Some(&self.history), width);
        let state = if self.paused { "  paused" } else { "" };
        let first = lines.remove(0).with(Style::Soft, format!("  {target}"));
        lines.insert(0, first.with(Style::Warning, state));
        lines.extend(layout::carriers(&self.view, &self.history, width, (height / 3).max(1)));
        lines.extend(layout::deadlocks(&self.view, width));
        if let Some(problem) = &self.problem {
            lines.push(Line::new(width).with(Style::Bad, problem));
        }
        lines.push(Line::new(width));
        lines.push(layout::heads(width));
        let room = height.saturating_sub(lines.len() + 1);
        // Keep the chosen fiber visible.
        self.scrolled = self.scrolled.min(self.chosen);
        self.scrolled = self.scrolled.max((self.chosen + 1).saturating_sub(room));
        let rows = self.view.fibers.iter().enumerate().skip(self.scrolled).take(room);
        lines.extend(
            rows.map(|(index, fiber)| layout::row(fiber, &self.view, width, index == self.chosen)),
        );
        lines
    }

    fn bottom(&self, width: usize) -> Line {
        let line = Line::new(width);
        if let Some(typed) = &self.typed {
            return line
                .with(Style::Bold, "filter: ")
                .with(Style::Plain, format!("{typed}█"))
                .with(Style::Soft, "   Enter keep   Esc clear");
        }
        if let Some(shown) = &self.backtrace {
            let frames = if shown.full { "fewer frames" } else { "all frames" };
            return line
                .with(Style::Soft, format!("Esc back   f {frames}   Enter again   ↑↓ scroll"));
        }
        let (matched, sent) = (self.view.matched, self.view.fibers.len());
        let position = if sent == 0 { 0 } else { self.chosen + 1 };
        let mut line = line.with(Style::Soft, format!("{position}/{matched}   q quit   s sort: "));
        line =
            line.with(Style::Plain, &self.wish.sort).with(Style::Soft, "   r reverse   / filter");
        if !self.wish.filter.is_empty() {
            line = line.with(Style::Soft, ": ").with(Style::Plain, &self.wish.filter);
        }
        line.with(Style::Soft, "   p pause   ↑↓ choose   Enter backtrace")
    }
}

impl Backtrace {
    fn draw(&self, width: usize, height: usize) -> Vec<Line> {
        let mut lines = Vec::new();
        for (number, text) in self.lines.iter().enumerate().skip(self.scrolled).take(height) {
            let style = match number {
                0 => Style::Bold,
                _ if text.trim_start().starts_with("at ") => Style::Soft,
                _ => Style::Plain,
            };
            lines.push(Line::new(width).with(style, text));
        }
        lines
    }
}
