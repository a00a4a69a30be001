//! The page on a screen, and what its keys do.

use super::history::TopHistory;
use super::pane::{HEADS, LineSubject, PANES, Pane, PaneKind, panes};
use crate::output::printable;
use mpps_host::Overview;
use mpps_report::{Block as ReportBlock, Quantity, Terminal as ReportTerminal};
use ratatui::Frame;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Words, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, Wrap};

const HELP: &str = "\
Tab, Shift-Tab   the next table, the one before
Up, Down, PgUp, PgDn   choose a line
Enter            what `mpps doctor` finds about that line
Left, Right      sort it by another column
r                sort it the other way
/                show only its lines with a text; Enter keeps it, Esc ends it
z                this table alone, or all
p, Space         pause, go on
?                this help
q, Ctrl-C        end

A line with ! has something wrong: packets are lost there, a CPU is full, a
queue has half as much again as its share, or its CPU is at another node than
the card. SQUEEZED: the CPU stopped to receive with work left. STEERED: another
CPU woke it to receive (RPS). WAITED: ready, without a CPU. Columns of sockets
tell of the busiest thread of the program. CPUs are those of the machine, the
rest is of the network namespace. UNHANDLED: frames that no protocol here
takes, as LLDP. The bars are the last 60 s; \u{b7} is none.";

const KEYS: &str = "q end  ? help  Tab table  Enter why  <- -> sort  / filter  z zoom  p pause";
/// From this height on there is a head of several lines.
const HIGH: u16 = 16;
/// The fewest and the most bars of a line.
const BARS: (usize, usize) = (8, 60);

/// The input of a drawing.
pub(super) struct TopView<'a> {
    pub(super) page: &'a Overview,
    pub(super) notes: &'a [String],
    pub(super) history: &'a TopHistory,
    /// The name of the network namespace.
    pub(super) namespace: &'a str,
    /// The time of day.
    pub(super) clock: &'a str,
    /// The findings of the doctor about a line.
    pub(super) why: &'a dyn Fn(&LineSubject) -> Vec<ReportBlock>,
}

/// The user's choices.
#[derive(Debug, Default)]
pub(super) struct Screen {
    active: usize,
    chosen: [Chosen; PANES],
    /// The filter is being typed.
    typing: bool,
    zoomed: bool,
    help: bool,
    /// The findings about the chosen line are asked for.
    asks: bool,
    /// The findings that are shown, until a key is pressed.
    why: Option<Vec<ReportBlock>>,
    /// Lines above the first that is shown of help or findings.
    above: u16,
    pub(super) paused: bool,
    coloured: bool,
}

/// The user's choices for one table.
#[derive(Debug, Default, Clone)]
struct Chosen {
    /// The sort column; none for the original order.
    sort: Option<usize>,
    reversed: bool,
    filter: String,
    /// The chosen line.
    row: usize,
    /// Lines above the first that is shown.
    above: usize,
}

impl Screen {
    pub(super) fn new(coloured: bool) -> Self {
        Self {
            coloured,
            ..Self::default()
        }
    }

    /// Handles a key; true if it ends the program.
    pub(super) fn key(&mut self, key: KeyEvent) -> bool {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && key.code == KeyCode::Char('c') {
            return true;
        }
        if self.typing {
            self.type_filter(key.code);
            return false;
        }
        if self.help || self.why.is_some() {
            match key.code {
                KeyCode::Down => self.above = self.above.saturating_add(1),
                KeyCode::Up => self.above = self.above.saturating_sub(1),
                code => {
                    (self.help, self.why, self.above) = (false, None, 0);
                    return code == KeyCode::Char('q');
                }
            }
            return false;
        }
        let columns = HEADS[self.active].len();
        let chosen = &mut self.chosen[self.active];
        match key.code {
            KeyCode::Char('q') => return true,
            KeyCode::Char('?' | 'h') => self.help = true,
            KeyCode::Enter => self.asks = true,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('z') => self.zoomed = !self.zoomed,
            KeyCode::Char('r') => chosen.reversed = !chosen.reversed,
            KeyCode::Char('/') => self.typing = true,
            KeyCode::Esc => chosen.filter.clear(),
            KeyCode::Tab => self.active = (self.active + 1) % PANES,
            KeyCode::BackTab => self.active = (self.active + PANES - 1) % PANES,
            KeyCode::Right => {
                chosen.sort = Some(chosen.sort.map_or(0, |column| (column + 1) % columns));
            }
            KeyCode::Left => {
                let before = |column| (column + columns - 1) % columns;
                chosen.sort = Some(chosen.sort.map_or(columns - 1, before));
            }
            KeyCode::Down => chosen.row = chosen.row.saturating_add(1),
            KeyCode::Up => chosen.row = chosen.row.saturating_sub(1),
            KeyCode::PageDown => chosen.row = chosen.row.saturating_add(10),
            KeyCode::PageUp => chosen.row = chosen.row.saturating_sub(10),
            KeyCode::Home => chosen.row = 0,
            _ => {}
        }
        false
    }

    fn type_filter(&mut self, code: KeyCode) {
        let filter = &mut self.chosen[self.active].filter;
        match code {
            KeyCode::Char(character) => filter.push(character),
            KeyCode::Backspace => {
                filter.pop();
            }
            KeyCode::Esc => {
                filter.clear();
                self.typing = false;
            }
            KeyCode::Enter => self.typing = false,
            _ => {}
        }
    }

    /// Draws the page.
    pub(super) fn draw(&mut self, frame: &mut Frame, view: &TopView<'_>) {
        let all = frame.area();
        let mut words = vec![self.head(view, all.height)];
        if all.height >= HIGH {
            words.extend(self.minute(view, all.width.into()));
        }
        let [head, body, foot] = Layout::vertical([
            Constraint::Length(words.len() as u16),
            Constraint::Fill(1),
            Constraint::Length(1),
        ])
        .areas(all);
        frame.render_widget(Paragraph::new(words), head);
        frame.render_widget(self.foot(), foot);
        let mut tables = panes(view.page);
        for (pane, chosen) in tables.iter_mut().zip(&self.chosen) {
            pane.filter(&chosen.filter);
            if let Some(column) = chosen.sort {
                pane.sort(column, chosen.reversed);
            } else if chosen.reversed {
                pane.lines.reverse();
            }
        }
        let heights = self.heights(body.height, &tables);
        let areas = Layout::vertical(heights.map(Constraint::Length)).split(body);
        for (at, pane) in tables.iter().enumerate() {
            self.table(frame, areas[at], at, pane);
        }
        if std::mem::take(&mut self.asks) {
            let row = self.chosen[self.active].row;
            let line = tables[self.active].lines.get(row);
            self.why = line.map(|line| (view.why)(&line.subject));
        }
        let wide = all.width.min(82);
        let inside = usize::from(wide).saturating_sub(2).max(1);
        let text = match &self.why {
            Some(why) => ReportTerminal::new(inside, false)
                .blocks(why)
                .replace('\u{a0}', " "),
            None if self.help => {
                let told = view
                    .notes
                    .iter()
                    .map(|note| format!("\n\n{}", printable(note)));
                format!("{HELP}{}", told.collect::<String>())
            }
            None => return,
        };
        self.cover(frame, &text, wide);
    }

    /// Draws a text over the page.
    fn cover(&mut self, frame: &mut Frame, text: &str, wide: u16) {
        let all = frame.area();
        let inside = usize::from(wide).saturating_sub(2).max(1);
        let lines = text
            .lines()
            .map(|line| line.chars().count().div_ceil(inside).max(1));
        let lines = u16::try_from(lines.sum::<usize>()).unwrap_or(u16::MAX);
        // Breaks between words take some more.
        let high = lines.saturating_add(2 + lines / 16).min(all.height);
        self.above = self.above.min(lines.saturating_sub(high.saturating_sub(2)));
        let text = Paragraph::new(text.to_owned())
            .wrap(Wrap { trim: false })
            .scroll((self.above, 0))
            .block(Block::bordered().title(" mpps top "));
        let area = Rect::new((all.width - wide) / 2, (all.height - high) / 2, wide, high);
        frame.render_widget(Clear, area);
        frame.render_widget(text, area);
    }

    /// How high each table is: its head and its lines, and where there is no room for all, the
    /// highest give way.
    fn heights(&self, room: u16, tables: &[Pane; PANES]) -> [u16; PANES] {
        // A head and a line of each need this.
        let is_small = usize::from(room) < 2 * PANES;
        if self.zoomed || is_small {
            let mut heights = [0; PANES];
            heights[self.active] = room;
            return heights;
        }
        let wanted = |pane: &Pane| u16::try_from(pane.lines.len().max(1) + 1).unwrap_or(u16::MAX);
        let mut heights: [u16; PANES] = std::array::from_fn(|at| wanted(&tables[at]).min(room));
        while heights.iter().map(|height| u32::from(*height)).sum::<u32>() > room.into() {
            let highest = (0..PANES).max_by_key(|&at| heights[at]).unwrap_or(0);
            heights[highest] -= 1;
        }
        heights
    }

    fn head(&self, view: &TopView<'_>, height: u16) -> Words<'static> {
        let ledger = &view.page.ledger;
        let rate = |count| rate(count as f64 / view.page.seconds);
        let bad = |is_bad| if is_bad { self.bad() } else { Style::new() };
        let unaccounted = view.page.unaccounted();
        let place = format!("  {}  netns {}", view.clock, printable(view.namespace));
        let lost = Span::styled(
            format!("  UDP lost {}", rate(ledger.lost())),
            bad(ledger.lost() > 0),
        );
        let mut spans = vec![Span::styled("mpps top", self.strong()), place.into()];
        // The line of the last minute has it.
        spans.extend((height < HIGH).then_some(lost));
        spans.push(format!("  UDP read {}  ", rate(ledger.delivered)).into());
        spans.push(Span::styled(
            format!("unaccounted {unaccounted}"),
            bad(unaccounted != 0),
        ));
        if self.paused {
            spans.insert(2, Span::styled("  PAUSED", self.strong()));
        }
        if !view.notes.is_empty() {
            spans.push("  some is hidden (?)".into());
        }
        Words::from(spans)
    }

    /// The last minute, and what came of all since the page began.
    fn minute(&self, view: &TopView<'_>, width: usize) -> [Words<'static>; 2] {
        let (history, totals) = (view.history, &view.history.totals);
        let share = totals.lost as f64 / totals.offered.max(1) as f64;
        let number = |count: u64| mpps_report::grouped(count.into()).replace('\u{a0}', " ");
        let all = [
            number(totals.offered),
            format!("{} ({})", number(totals.lost), Quantity::Share(share)),
        ];
        let peaks = [totals.peak_offered_pps, totals.peak_lost_pps].map(rate);
        let now = [view.page.ledger.offered, view.page.ledger.lost()];
        let now = now.map(|count| rate(count as f64 / view.page.seconds));
        let columns = |words: &[String; 2]| {
            words
                .iter()
                .map(|word| word.chars().count())
                .max()
                .unwrap_or(0)
        };
        let (wide, peak) = (columns(&now), columns(&peaks));
        let taken = format!("came {:wide$}   peak {:peak$}  in all ", "", "").len() + columns(&all);
        let bars = width.saturating_sub(taken).clamp(BARS.0, BARS.1);
        let bars = [
            history.bars(|look| look.came, bars),
            history.bars(|look| look.lost, bars),
        ];
        let style = |is_bad| if is_bad { self.bad() } else { Style::new() };
        let line = |at: usize, name: &str, is_bad| {
            Words::from(vec![
                format!("{name} {:>wide$} ", now[at]).into(),
                Span::styled(bars[at].clone(), style(is_bad)),
                format!("  peak {:>peak$}  in all {}", peaks[at], all[at]).into(),
            ])
        };
        [line(0, "came", false), line(1, "lost", totals.lost > 0)]
    }

    fn foot(&self) -> Words<'static> {
        let filter = printable(&self.chosen[self.active].filter);
        match (self.typing, filter.is_empty()) {
            (true, _) => Words::from(format!("/{filter}_  Enter keeps it, Esc ends it")),
            (false, false) => Words::from(format!("only lines with `{filter}`; Esc ends that")),
            (false, true) => Words::from(KEYS),
        }
    }

    fn table(&mut self, frame: &mut Frame, area: Rect, at: usize, pane: &Pane) {
        if area.height == 0 {
            return;
        }
        let room = usize::from(area.height - 1);
        let most = pane.lines.len().saturating_sub(room);
        let (is_active, strong, bad) = (at == self.active, self.strong(), self.bad());
        let chosen = &mut self.chosen[at];
        chosen.row = chosen.row.min(pane.lines.len().saturating_sub(1));
        // The chosen line stays in sight.
        let lowest = (chosen.row + 1).saturating_sub(room);
        chosen.above = chosen.above.clamp(lowest, chosen.row.max(lowest)).min(most);
        let below = most - chosen.above;
        // A sign stands before the first.
        let widths = pane.widths(area.width.saturating_sub(1));
        let columns = || pane.heads.iter().zip(&widths).enumerate();
        let heads = columns().map(|(column, (head, _))| {
            let sign = if is_active { ">" } else { " " };
            let order = match (chosen.sort == Some(column), chosen.reversed) {
                (false, _) => "",
                (true, false) => "v",
                (true, true) => "^",
            };
            let sign = if column == 0 { sign } else { "" };
            aligned(format!("{sign}{}{order}", head.name), head.kind)
        });
        let heads = Row::new(heads).style(strong.add_modifier(Modifier::REVERSED));
        let lines = pane.lines.iter().skip(chosen.above).take(room).enumerate();
        let rows = lines.map(|(row, line)| {
            let below = match row + 1 == room && below > 0 {
                true => format!(" +{below}"),
                false => String::new(),
            };
            let cells = line.cells.iter().zip(columns());
            let cells = cells.map(|(cell, (column, (head, &width)))| {
                let width = usize::from(width);
                let text = match column {
                    0 => {
                        let sign = if line.is_marked { '!' } else { ' ' };
                        let text = cell.cut(head.kind, width.saturating_sub(below.len()));
                        format!("{sign}{text}{below}")
                    }
                    _ => cell.cut(head.kind, width),
                };
                aligned(text, head.kind)
            });
            let style = if line.is_marked { bad } else { Style::new() };
            let is_chosen = is_active && chosen.above + row == chosen.row;
            let more = if is_chosen {
                Modifier::REVERSED
            } else {
                Modifier::empty()
            };
            Row::new(cells).style(style.add_modifier(more))
        });
        let rows: Vec<Row> = rows.collect();
        let signs = widths.iter().enumerate();
        let signs = signs.map(|(at, width)| Constraint::Length(width + u16::from(at == 0)));
        let [first, rest] =
            Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
        if rows.is_empty() {
            frame.render_widget(Paragraph::new(format!(" {}", pane.nothing)), rest);
        }
        let table = Table::new(rows, signs).header(heads);
        frame.render_widget(table, if pane.lines.is_empty() { first } else { area });
    }

    fn strong(&self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    fn bad(&self) -> Style {
        match self.coloured {
            true => Style::new().fg(Color::Red),
            false => Style::new().add_modifier(Modifier::BOLD),
        }
    }
}

/// `352 000/s`.
fn rate(rate: f64) -> String {
    format!(
        "{}/s",
        Quantity::PerSecond(rate).figure().replace('\u{a0}', " ")
    )
}

fn aligned(text: String, kind: PaneKind) -> Words<'static> {
    match kind {
        PaneKind::Figures => Words::from(text).right_aligned(),
        _ => Words::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::super::history::tests::history;
    use super::super::pane::tests::page;
    use super::*;
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn shot(screen: &mut Screen, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("no terminal");
        let mut lost = vec![0.0; 90];
        (lost[50], lost[89]) = (700.0, 2000.0);
        let view = TopView {
            page: &page(),
            notes: &[],
            history: &history(&lost),
            namespace: "dns\u{1b}",
            clock: "14:03:22Z",
            why: &|subject| vec![ReportBlock::paragraph(format!("about {subject:?}"))],
        };
        let drawn = terminal.draw(|frame| screen.draw(frame, &view));
        drawn.expect("it is drawn");
        let text = terminal.backend().to_string();
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn press(screen: &mut Screen, keys: &[KeyCode]) {
        for &code in keys {
            assert!(
                !screen.key(KeyEvent::new(code, KeyModifiers::NONE)),
                "{code:?}"
            );
        }
    }

    #[test]
    fn it_is_drawn_at_three_sizes() {
        let shots = [(80, 24), (132, 30), (60, 12)];
        let shots = shots.map(|(width, height)| shot(&mut Screen::new(false), width, height));
        insta::assert_snapshot!(shots.join("\n----\n"));
    }

    #[test]
    fn help_covers_the_page() {
        let mut screen = Screen::new(true);
        press(&mut screen, &[KeyCode::Char('?')]);
        insta::assert_snapshot!(shot(&mut screen, 84, 24));
        press(&mut screen, &[KeyCode::Char('x')]);
        assert!(!shot(&mut screen, 84, 24).contains("this help"));
    }

    #[test]
    fn tables_are_sorted_filtered_and_zoomed() {
        let mut screen = Screen::new(true);
        // The table of sockets, by its address.
        press(
            &mut screen,
            &[KeyCode::BackTab, KeyCode::Char('z'), KeyCode::Right],
        );
        let order = |text: &str| {
            let place = |of: &str| text.find(of).unwrap_or_else(|| panic!("no {of}: {text}"));
            place(":123") < place(":53")
        };
        let text = shot(&mut screen, 80, 24);
        assert!(order(&text) && !text.contains("INTERFACE"), "{text}");
        press(&mut screen, &[KeyCode::Char('r')]);
        assert!(!order(&shot(&mut screen, 80, 24)));
        let typed = "/hidden".chars().map(KeyCode::Char).collect::<Vec<_>>();
        press(&mut screen, &typed);
        press(&mut screen, &[KeyCode::Enter, KeyCode::Char('z')]);
        let text = shot(&mut screen, 80, 24);
        assert!(text.contains(":123") && !text.contains(":53"), "{text}");
        assert!(
            text.contains("INTERFACE") && text.contains("`hidden`"),
            "{text}"
        );
        press(&mut screen, &[KeyCode::Esc]);
        assert!(shot(&mut screen, 80, 24).contains(":53"));
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut screen = Screen::new(true);
        let text = shot(&mut screen, 80, 10);
        assert!(text.contains("+1") && text.contains("+2"), "{text}");
        press(&mut screen, &[KeyCode::Tab, KeyCode::PageDown]);
        assert!(
            shot(&mut screen, 80, 10).contains("316 800"),
            "the last queue"
        );
    }

    #[test]
    fn enter_shows_what_is_found_about_the_chosen_line() {
        let mut screen = Screen::new(true);
        press(&mut screen, &[KeyCode::Enter]);
        let text = shot(&mut screen, 80, 24);
        assert!(text.contains("about Loss(Socket"), "{text}");
        press(
            &mut screen,
            &[KeyCode::Esc, KeyCode::Tab, KeyCode::Tab, KeyCode::Down],
        );
        assert!(!shot(&mut screen, 80, 24).contains("about"));
        press(&mut screen, &[KeyCode::Enter]);
        assert!(shot(&mut screen, 60, 20).contains("about Cpu(1)"));
        assert!(screen.key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE)));
    }

    #[test]
    fn ctrl_c_ends_it_wherever_it_is() {
        for before in [None, Some('?'), Some('/')] {
            let mut screen = Screen::new(true);
            press(
                &mut screen,
                &before.map(KeyCode::Char).into_iter().collect::<Vec<_>>(),
            );
            assert!(screen.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn no_keys_and_no_size_break_it(
            keys in proptest::collection::vec(0..16_usize, 0..40), width in 1..200_u16, height in 1..60_u16,
        ) {
            use KeyCode::*;
            const CODES: [KeyCode; 16] = [
                Char('?'), Char('p'), Char('z'), Char('r'), Char('/'), Char('x'), Esc, Tab, BackTab, Right,
                Left, Down, Up, PageDown, Enter, Backspace,
            ];
            let mut screen = Screen::new(true);
            for key in keys {
                screen.key(KeyEvent::new(CODES[key], KeyModifiers::NONE));
            }
            let _ = shot(&mut screen, width, height);
        }
    }
}
