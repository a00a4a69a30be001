//! The common parts of the documents of all experiments: the head, the ledgers, the doubts, and the
//! machine.

use super::envelope::Envelope;
use super::samples::extremes;
use mpps_host::{Ledger, Loss, Station, Witness};
use mpps_report::{
    Balance, Bars, Block, Column, Document, Equation, EquationPart, Hue, Quantity, Row, Shares,
    Style, Table, Text, grouped, unbroken,
};
use std::collections::HashMap;
use std::hash::Hash;
use std::path::Path;

/// Characters that a column with the words of a loss has at least.
pub(crate) const LOST: usize = 26;

/// The facts of a run that a reader needs before its figures.
#[derive(Debug)]
pub(crate) struct RunHead<'a, T> {
    result: &'a Envelope<T>,
    /// The roles of the CPUs, in one line.
    placement: &'a str,
    /// The name of the unit whose last one an ended run lacks: `rung`, `row`, `cell`.
    unit: &'static str,
    /// Cases and options that this machine lacks, and why.
    notes: &'a [String],
}

impl<'a, T> RunHead<'a, T> {
    /// The head of a result's document.
    pub(crate) fn of(
        result: &'a Envelope<T>,
        placement: &'a str,
        unit: &'static str,
        notes: &'a [String],
    ) -> Self {
        Self {
            result,
            placement,
            unit,
            notes,
        }
    }

    /// The first blocks, `more` of this family among them. A page has the flags and the notes here.
    pub(crate) fn first(&self, more: impl IntoIterator<Item = Block>) -> Vec<Block> {
        let Envelope {
            started, version, ..
        } = self.result;
        let when = format!("{started} · mpps {version} · ");
        let when = Text::new().faint(when).code(&*self.result.command);
        let mut blocks = vec![
            Block::on_page([Block::Paragraph(when)]),
            Block::paragraph(self.placement),
            Block::on_page(self.flags()),
        ];
        blocks.extend(more);
        blocks.push(Block::on_page(self.notes.iter().map(Block::note)));
        blocks
    }

    /// The part that a terminal shows below the figures, because a user sees the last lines.
    pub(crate) fn last(&self) -> Block {
        Block::on_text(self.notes.iter().map(Block::note).chain(self.flags()))
    }

    /// That the run was quick, or ended early.
    pub(crate) fn flags(&self) -> Vec<Block> {
        let flag = |text: String| Block::Paragraph(Text::styled(Style::Bad, text));
        let quick = "a quick run: too short to be compared with another".to_owned();
        let unit = self.unit;
        let incomplete = format!("ended before its last {unit}: this is what was known by then");
        let flags = [
            (self.result.quick, quick),
            (!self.result.complete, incomplete),
        ];
        let flags = flags.into_iter().filter(|(is_so, _)| *is_so);
        flags.map(|(_, text)| flag(text)).collect()
    }
}

/// The notes on rows, for a medium whose rows have no sections of their own. A note that several
/// rows share appears once. `unit` names a row, such as `rung `, or is empty.
pub(crate) fn notes_on<'a>(
    unit: &str,
    rows: impl IntoIterator<Item = (String, &'a [String])>,
) -> Block {
    let notes = rows.into_iter().flat_map(|(row, notes)| {
        let note = move |note: &'a String| (row.clone(), note.as_str());
        notes.iter().map(note)
    });
    let shared = together(notes);
    let told = shared.into_iter().map(|(note, rows)| {
        let plural = match (unit, rows.len()) {
            ("", _) | (_, 1) => "",
            _ => "s",
        };
        let blank = if unit.is_empty() { "" } else { " " };
        let said = format!("note on {unit}{plural}{blank}{}: {note}", rows.join(", "));
        Block::Paragraph(Text::new().faint(said))
    });
    Block::on_text(told)
}

/// Whoever has the same words together, in the order of the first of them. A file may have a million
/// rows, so documents look up by this and by [`firsts`], not row by row.
pub(crate) fn together<T, K>(all: impl IntoIterator<Item = (T, K)>) -> Vec<(K, Vec<T>)>
where
    K: Clone + Eq + Hash,
{
    let mut together: Vec<(K, Vec<T>)> = Vec::new();
    let mut places = HashMap::new();
    for (one, words) in all {
        let place = *places.entry(words.clone()).or_insert(together.len());
        match together.get_mut(place) {
            Some((_, others)) => others.push(one),
            None => together.push((words, vec![one])),
        }
    }
    together
}

/// The first of those that have the same words, by their words.
pub(crate) fn firsts<T, K: Eq + Hash>(all: impl IntoIterator<Item = (T, K)>) -> HashMap<K, T> {
    let mut firsts = HashMap::new();
    for (one, words) in all {
        firsts.entry(words).or_insert(one);
    }
    firsts
}

/// The files that a run wrote, as kinds and paths (`report`, `lab.html`), in a terminal.
pub(crate) fn files(files: &[(&str, &Path)]) -> Block {
    let written = files
        .iter()
        .map(|(kind, path)| unbroken(&format!("{kind} {}", path.display())));
    let written: Vec<String> = written.collect();
    Block::on_text((!written.is_empty()).then(|| Block::paragraph(written.join("   "))))
}

/// The end of a page: the machine, what has to be known of the figures, and the data file, if `files`
/// has one of the kind `data`.
pub(crate) fn end_of_page<T>(
    result: &Envelope<T>,
    about: impl IntoIterator<Item = Text>,
    files: &[(&str, &Path)],
) -> Block {
    let mut blocks = vec![Block::heading("About these figures")];
    blocks.extend(about.into_iter().map(Block::Paragraph));
    let data = files.iter().find(|(kind, _)| *kind == "data");
    if let Some(name) = data.and_then(|(_, path)| path.file_name()) {
        let said = Text::from("The same run as data: ").code(name.to_string_lossy());
        blocks.push(Block::Paragraph(
            said.plain(format!(" (schema {}).", result.schema)),
        ));
    }
    let machine = serde_json::to_value(&result.fingerprint).ok();
    blocks.extend(machine.map(|machine| {
        Block::Details(
            "Machine and settings".to_owned(),
            vec![Table::of_json(&machine).into()],
        )
    }));
    Block::on_page(blocks)
}

/// The document of a result, of these blocks and what ends every one: [`files`], [`end_of_page`].
pub(crate) fn document_of<T>(
    title: &str,
    result: &Envelope<T>,
    mut blocks: Vec<Block>,
    about: impl IntoIterator<Item = Text>,
    written: &[(&str, &Path)],
) -> Document {
    blocks.extend([files(written), end_of_page(result, about, written)]);
    Document::new(title, format!("mpps {}", result.version), blocks)
}

/// A count with its digits in groups.
pub(crate) fn count(count: u64) -> String {
    grouped(count.into())
}

/// `1 thread`, `2 threads`.
pub(crate) fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}

/// The lowest and the highest repeat as a range, if there are two repeats to differ.
pub(crate) fn spread(samples: &[f64], quantity: fn(f64) -> Quantity) -> Option<String> {
    let range = extremes(samples)?.map(quantity);
    (samples.len() > 1).then(|| mpps_report::range(range))
}

/// The offered rate, and the rate of each repeat, as a paragraph; `unit` gets millions a second.
pub(crate) fn rates(offered: f64, samples: &[f64], unit: impl Fn(f64) -> Quantity) -> Block {
    let offered = unit(offered).to_string();
    let figures: Vec<String> = samples.iter().map(|rate| unit(*rate).figure()).collect();
    let repeats = match figures.len() {
        0 => String::new(),
        1 => format!("; received in 1 repeat: {}", figures[0]),
        many => format!("; received in {many} repeats: {}", figures.join(", ")),
    };
    Block::Paragraph(
        Text::from("Offered ")
            .strong(offered)
            .plain(format!("{repeats}.")),
    )
}

/// How many of a run's ledgers balance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Balanced {
    all: usize,
    /// Those whose terms all count datagrams.
    exact: usize,
    /// Those without unaccounted datagrams.
    balanced: usize,
}

impl<'a> FromIterator<&'a Ledger> for Balanced {
    fn from_iter<I: IntoIterator<Item = &'a Ledger>>(ledgers: I) -> Self {
        let mut count = Self::default();
        for ledger in ledgers {
            count.all += 1;
            count.exact += usize::from(ledger.is_exact());
            count.balanced += usize::from(ledger.balances());
        }
        count
    }
}

impl Balanced {
    /// True if no datagram is unaccounted for where the counters are exact.
    pub(crate) fn is_good(&self) -> bool {
        self.balanced == self.exact
    }

    /// `79 of 80 exact ledgers balance`
    pub(crate) fn exact_said(&self) -> String {
        format!("{} of {} exact ledgers balance", self.balanced, self.exact)
    }

    /// `79 of 80 exact ledgers balance to zero; 1 other is inexact, since ...`
    pub(crate) fn said(&self) -> Text {
        let said = self.exact_said() + " to zero";
        let others = match self.all - self.exact {
            0 => return Text::new().flag(self.is_good(), said),
            1 => "1 other is".to_owned(),
            many => format!("{many} others are"),
        };
        Text::new().flag(self.is_good(), said).plain(format!(
            "; {others} inexact, since a counter does not count datagrams: without the drop probe \
             a dropped train counts as one"
        ))
    }
}

/// A ledger as the equation it is; `name` is what it is of, such as `ledger of rung 9a`.
pub(crate) fn equation(name: impl Into<String>, ledger: &Ledger) -> Equation {
    let text = hard_numbers(&ledger.to_string());
    let (terms, remainder) = match text.rsplit_once(" + UNACCOUNTED") {
        Some((terms, rest)) => (terms.to_owned(), format!("UNACCOUNTED{rest}")),
        None => (text, String::new()),
    };
    Equation {
        name: name.into(),
        terms,
        remainder,
        balance: match (ledger.balances(), ledger.is_exact()) {
            (true, _) => Balance::Balances,
            (false, true) => Balance::Unbalanced,
            (false, false) => Balance::Inexact,
        },
        notes: ledger.notes.clone(),
    }
}

/// The doubts about a ledger: that it does not balance, and each witness that disagrees with it.
/// `of` names its subject, such as `rung 9a`. `which` identifies it among the ledgers of that
/// subject.
pub(crate) fn doubts(of: &str, which: &str, ledger: &Ledger) -> Vec<Block> {
    let said = |style, text: String| Block::Paragraph(Text::styled(style, text));
    let mut doubts = Vec::new();
    let equation = hard_numbers(&ledger.to_string());
    match (ledger.balances(), ledger.is_exact()) {
        (true, _) => {}
        (false, true) => doubts.push(said(
            Style::Bad,
            format!("ledger of {of}{which} DOES NOT BALANCE: {equation}"),
        )),
        (false, false) => doubts.push(said(
            Style::Faint,
            format!("ledger of {of}{which} is not exact: {equation}"),
        )),
    }
    // A counter of trains cannot agree with a counter of datagrams.
    let witnesses = ledger.witnesses.iter().filter(|_| ledger.is_exact());
    let said_of = |text| said(Style::Bad, format!("{of}: {text}"));
    doubts.extend(witnesses.filter_map(disagreement).map(said_of));
    doubts
}

/// The statement of a witness that disagrees with the ledger.
pub(crate) fn disagreement(witness: &Witness) -> Option<String> {
    let [other, own] = [witness.witness, witness.ledger].map(count);
    let (source, about) = (&witness.source, &witness.about);
    let said = || format!("{source} disagrees about {about}: it says {other}, the ledger {own}");
    (!witness.agrees()).then(said)
}

/// The whole ledger, if there is room for it: the equation and its witnesses.
pub(crate) fn whole(ledger: &Ledger) -> Vec<Block> {
    let mut blocks = vec![equation("", ledger).into()];
    if ledger.witnesses.is_empty() {
        return blocks;
    }
    let columns = [
        Column::words("About", 20),
        Column::words("Second count", 20).grow(20),
        Column::figure("Ledger", 13),
        Column::figure("Witness", 13),
        Column::words("Verdict", 11),
    ];
    let rows = ledger.witnesses.iter().map(|witness| {
        let good = witness.agrees();
        let verdict = if good { "✓ agrees" } else { "✗ disagrees" };
        Row::new([
            (*witness.about).into(),
            Text::new().faint(&*witness.source).into(),
            count(witness.ledger).into(),
            count(witness.witness).into(),
            Text::new().flag(good, verdict).into(),
        ])
    });
    blocks.push(Table::new(columns).rows(rows).into());
    blocks
}

/// Where the packets of one row went, all its repeats together.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct RowTotals {
    /// Everything that had to be accounted for: offered datagrams and multicast copies.
    pub(crate) offered: u128,
    /// Datagrams that arrived.
    pub(crate) delivered: u128,
    /// Losses by station and reason, largest first.
    pub(crate) losses: Vec<Lost>,
    /// Datagrams still in the socket buffers at the end.
    pub(crate) queued: u128,
    /// Datagrams that no counter explains; negative if some were counted twice.
    pub(crate) unaccounted: i128,
    /// A counter does not count datagrams.
    is_inexact: bool,
}

/// One loss of [`RowTotals`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Lost {
    pub(crate) station: Station,
    pub(crate) reason: String,
    pub(crate) count: u128,
    /// The counter, and what has to be known of it.
    pub(crate) source: String,
}

impl Lost {
    /// Losses of one station and reason.
    fn of(losses: &[&Loss]) -> Self {
        let loss = losses[0];
        let by_difference = match loss.by_difference {
            true => ", by difference",
            false => "",
        };
        let inexact = if loss.exact { "" } else { ", inexact" };
        Self {
            station: loss.station,
            reason: loss.reason.clone(),
            count: losses.iter().map(|loss| u128::from(loss.count)).sum(),
            source: format!("{}{by_difference}{inexact}", loss.source),
        }
    }
}

impl RowTotals {
    /// Adds up the ledgers behind a rate, or takes the ledger of the exactness run if there are none.
    pub(crate) fn of(exact: Option<&Ledger>, samples: &[Ledger]) -> Option<Self> {
        match samples {
            [] => exact.map(|exact| [exact].into_iter().collect()),
            _ => Some(samples.iter().collect()),
        }
    }

    /// A count's share of what was offered, 0 to 1 in a ledger that balances.
    pub(crate) fn share(&self, count: u128) -> f64 {
        if self.offered == 0 {
            return 0.0;
        }
        count as f64 / self.offered as f64
    }

    /// The share of all losses.
    pub(crate) fn lost(&self) -> Quantity {
        let lost = self.losses.iter().map(|loss| loss.count).sum();
        Quantity::Share(self.share(lost))
    }

    /// The share that did not arrive, and where most of it was lost: `18.3 % socket`.
    pub(crate) fn lost_most(&self) -> String {
        let rest = self.unaccounted.unsigned_abs();
        let lost: u128 = self.losses.iter().map(|loss| loss.count).sum();
        let share = Quantity::Share(self.share(lost + rest));
        match self.losses.first() {
            _ if lost + rest == 0 => "nothing".to_owned(),
            Some(most) if most.count >= rest => {
                // The ring of an interface is its queue; a program has the other rings.
                let place = match most.station {
                    Station::Wire => "queue",
                    other => other.name(),
                };
                unbroken(&format!("{share} {place}"))
            }
            _ => unbroken(&format!("{share} UNACCOUNTED")),
        }
    }

    /// The two largest losses with their shares, and the number of further ones. A loss is unbroken
    /// if it fits into `width` characters.
    pub(crate) fn lost_where(&self, width: usize) -> String {
        let mut parts: Vec<String> = Vec::new();
        for loss in self.losses.iter().take(2) {
            let whole = format!(
                "{} {}",
                loss.reason,
                Quantity::Share(self.share(loss.count))
            );
            let fits = whole.chars().count() < width;
            parts.push(if fits { unbroken(&whole) } else { whole });
        }
        if self.losses.len() > 2 {
            parts.push(unbroken(&format!("+{} more", self.losses.len() - 2)));
        }
        if self.unaccounted != 0 {
            let rest = self.unaccounted.unsigned_abs();
            let text = match self.is_inexact {
                // A counter of trains leaves a count of no known unit; its share says enough.
                true => {
                    let sign = if self.unaccounted < 0 { "-" } else { "" };
                    let share = Quantity::Share(self.share(rest));
                    format!("UNACCOUNTED {sign}{share}, inexact")
                }
                false => format!(
                    "UNACCOUNTED {}",
                    Quantity::Signed(self.unaccounted).figure()
                ),
            };
            // The largest part of what is missing comes first.
            let is_largest = self.losses.iter().all(|loss| loss.count < rest);
            let at = if is_largest { 0 } else { parts.len() };
            let fits = text.chars().count() < width;
            parts.insert(at, if fits { unbroken(&text) } else { text });
        }
        if parts.is_empty() {
            return "nothing".to_owned();
        }
        parts.join(", ")
    }

    /// The lost parts of this rate offered, each with the colour of its station.
    pub(crate) fn lost_parts(&self, offered: f64) -> impl Iterator<Item = (Hue, f64)> {
        let share = move |part: &EquationPart| part.count as f64 / self.offered.max(1) as f64;
        let parts = self.shares().parts.into_iter();
        let lost =
            parts.filter(|part| !matches!(part.class, "delivered" | "queued") && part.count > 0);
        lost.map(move |part| (Hue::Lost(part.class), offered * share(&part)))
    }

    /// The same as a bar and its table.
    pub(crate) fn shares(&self) -> Shares {
        let counted = |class, name: String, count: u128, source: &str| EquationPart {
            class,
            name,
            // A count beyond that is no count: a file may claim any.
            count: i128::try_from(count).unwrap_or(i128::MAX),
            share: Some(self.share(count)),
            source: source.to_owned(),
        };
        let own = "the receiving program's own count";
        let mut parts = vec![counted(
            "delivered",
            "delivered".to_owned(),
            self.delivered,
            own,
        )];
        parts.extend(self.losses.iter().map(|lost| {
            let name = format!("{}: {}", lost.station, lost.reason);
            counted(class(lost.station), name, lost.count, &lost.source)
        }));
        let drained = "drained and counted at the end";
        parts.push(counted(
            "queued",
            "still queued".to_owned(),
            self.queued,
            drained,
        ));
        if self.unaccounted != 0 {
            parts.push(EquationPart {
                class: "unaccounted",
                name: "UNACCOUNTED".to_owned(),
                count: self.unaccounted,
                share: None,
                source: match self.is_inexact {
                    true => "a counter does not count datagrams, such as those of dropped trains",
                    false => "no counter explains these",
                }
                .to_owned(),
            });
        }
        Shares {
            unit: "datagrams".to_owned(),
            parts,
        }
    }
}

/// These bars. Their key also names the stations of losses.
pub(crate) fn with_losses(mut bars: Bars) -> Bars {
    let figures = bars.bars.iter().filter_map(|bar| bar.outcome.as_ref().ok());
    for (hue, _) in figures.flat_map(|one| &one.parts) {
        let Hue::Lost(class) = hue else { continue };
        let at = match *class {
            "wire" => "queue",
            "socket" => "socket or ring",
            "unaccounted" => "UNACCOUNTED",
            other => other,
        };
        if bars.key.iter().all(|(known, _)| known != hue) {
            bars.key.push((*hue, format!("lost: {at}")));
        }
    }
    bars
}

/// Adds up ledgers. The sums are wide because a result file may claim any count.
impl<'a> FromIterator<&'a Ledger> for RowTotals {
    fn from_iter<I: IntoIterator<Item = &'a Ledger>>(ledgers: I) -> Self {
        let mut sum = Self::default();
        let mut losses = Vec::new();
        for ledger in ledgers {
            sum.offered += u128::from(ledger.offered) + u128::from(ledger.copies);
            sum.delivered += u128::from(ledger.delivered);
            sum.queued += u128::from(ledger.queued);
            sum.unaccounted += i128::from(ledger.unaccounted);
            sum.is_inexact |= !ledger.is_exact();
            let named = |loss: &'a Loss| (loss, (loss.station, &loss.reason));
            losses.extend(ledger.losses.iter().map(named));
        }
        let alike = together(losses).into_iter();
        sum.losses = alike.map(|(_, losses)| Lost::of(&losses)).collect();
        sum.losses.sort_by_key(|loss| std::cmp::Reverse(loss.count));
        sum
    }
}

/// The class of a station's colour.
fn class(station: Station) -> &'static str {
    match station {
        Station::Sender => "sender",
        Station::Wire => "wire",
        Station::Backlog => "backlog",
        Station::Ip => "ip",
        Station::Udp => "udp",
        Station::Socket | Station::Ring => "socket",
        Station::Application => "application",
    }
}

/// Keeps a line from breaking inside the grouped numbers of a ledger.
fn hard_numbers(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let digit = |at: Option<usize>| {
        at.and_then(|at| letters.get(at))
            .is_some_and(char::is_ascii_digit)
    };
    (0..letters.len())
        .map(|at| match letters[at] {
            ' ' if digit(at.checked_sub(1)) && digit(Some(at + 1)) => '\u{a0}',
            letter => letter,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loss(reason: &str, count: u64) -> Loss {
        Loss::new(Station::Udp, reason, count, "test")
    }

    fn ledger(offered: u64, delivered: u64, losses: impl IntoIterator<Item = Loss>) -> Ledger {
        let mut ledger = Ledger::new(offered, delivered, 0);
        losses.into_iter().for_each(|loss| ledger.lose(loss));
        ledger
    }

    fn words(blocks: &[Block]) -> Vec<String> {
        let words = |block: &Block| match block {
            Block::Paragraph(text) => text.words(),
            other => format!("{other:?}"),
        };
        blocks.iter().map(words).collect()
    }

    #[test]
    fn repeats_are_added_up_by_station_and_reason_largest_first() {
        let one = ledger(
            100,
            50,
            [loss("socket buffer full", 30), loss("no port", 20)],
        );
        let mut two = Ledger::new(100, 40, 10);
        two.lose(loss("no port", 40));
        let sum: RowTotals = [&one, &two].into_iter().collect();
        assert_eq!(
            (sum.offered, sum.delivered, sum.queued, sum.unaccounted),
            (200, 90, 10, 10)
        );
        let losses: Vec<_> = sum
            .losses
            .iter()
            .map(|loss| (&*loss.reason, loss.count))
            .collect();
        assert_eq!(losses, [("no port", 60), ("socket buffer full", 30)]);
        assert_eq!(sum.share(50), 0.25);
        assert_eq!(
            sum.lost_where(80).replace('\u{a0}', " "),
            "no port 30.0 %, socket buffer full 15.0 %, UNACCOUNTED 10"
        );
    }

    #[test]
    fn counts_of_any_size_are_added_up() {
        let huge = ledger(
            u64::MAX,
            u64::MAX,
            [loss("no port", u64::MAX), loss("no port", u64::MAX)],
        );
        let sum: RowTotals = [&huge, &huge].into_iter().collect();
        assert_eq!(sum.losses[0].count, 4 * u128::from(u64::MAX));
    }

    #[test]
    fn a_part_has_its_counter_and_what_has_to_be_known_of_it() {
        let mut ledger = Ledger::new(10, 6, 0);
        let doubtful = Loss {
            by_difference: true,
            exact: false,
            ..loss("ring full", 3)
        };
        ledger.lose(doubtful);
        let totals = RowTotals::of(Some(&ledger), &[]).unwrap();
        let parts: Vec<_> = totals.shares().parts;
        let parts: Vec<_> = parts
            .iter()
            .map(|part| (&*part.name, part.count, &*part.source))
            .collect();
        assert_eq!(
            parts,
            [
                ("delivered", 6, "the receiving program's own count"),
                ("UDP: ring full", 3, "test, by difference, inexact"),
                ("still queued", 0, "drained and counted at the end"),
                (
                    "UNACCOUNTED",
                    1,
                    "a counter does not count datagrams, such as those of dropped trains"
                ),
            ]
        );
    }

    #[test]
    fn an_equation_ends_with_what_is_unaccounted_for() {
        let good = equation("", &ledger(5000, 4000, [loss("no port", 1000)]));
        assert_eq!(
            good.terms.replace('\u{a0}', "_"),
            "offered 5_000 = delivered 4_000 + no port 1_000 + still queued 0"
        );
        assert_eq!(
            (&*good.remainder, good.balance),
            ("UNACCOUNTED 0", Balance::Balances)
        );
        let bad = equation("", &ledger(10, 12, []));
        assert_eq!(
            (&*bad.remainder, bad.balance),
            ("UNACCOUNTED -2", Balance::Unbalanced)
        );
        let trains = Loss {
            exact: false,
            ..loss("no port", 2)
        };
        assert_eq!(
            equation("", &ledger(9, 7, [trains])).balance,
            Balance::Inexact
        );
    }

    #[test]
    fn what_does_not_balance_and_who_disagrees_is_told() {
        let mut doubtful = ledger(5, 3, [loss("no port", 1)]);
        doubtful.witness("no port", "drop reason NO_SOCKET", 1, 2000);
        let said = words(&doubts("rung 4b", ", repeat 2,", &doubtful));
        assert!(said[0].starts_with("ledger of rung 4b, repeat 2, DOES NOT BALANCE: offered 5 ="));
        assert_eq!(
            said[1].replace('\u{a0}', "_"),
            "rung 4b: drop reason NO_SOCKET disagrees about no port: it says 2_000, the ledger 1"
        );
        let mut trains = ledger(
            5,
            3,
            [Loss {
                exact: false,
                ..loss("no port", 1)
            }],
        );
        trains.witness("no port", "drop reason NO_SOCKET", 1, 2);
        let said = words(&doubts("rung 12", "", &trains));
        assert!(
            said.len() == 1 && said[0].starts_with("ledger of rung 12 is not exact: "),
            "{said:?}"
        );
        assert!(doubts("rung 1", "", &ledger(1, 1, [])).is_empty());
    }

    #[test]
    fn a_note_that_rows_share_is_told_once() {
        let notes = [vec!["a".to_owned()], vec!["b".to_owned(), "a".to_owned()]];
        let rows = || {
            ["1", "2"]
                .into_iter()
                .zip(&notes)
                .map(|(row, notes)| (row.to_owned(), &**notes))
        };
        let told = |block| match block {
            Block::On(_, blocks) => words(&blocks),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            told(notes_on("rung", rows())),
            ["note on rungs 1, 2: a", "note on rung 2: b"]
        );
        assert_eq!(
            told(notes_on("", rows())),
            ["note on 1, 2: a", "note on 2: b"]
        );
    }

    #[test]
    fn inexact_ledgers_are_counted_apart() {
        let trains = Loss {
            exact: false,
            ..loss("no port", 1)
        };
        let all = [ledger(1, 1, []), ledger(2, 1, [trains])];
        let balanced: Balanced = all.iter().collect();
        assert!(balanced.is_good());
        assert_eq!(
            balanced.said().words(),
            "1 of 1 exact ledgers balance to zero; 1 other is inexact, since a counter does not count \
             datagrams: without the drop probe a dropped train counts as one"
        );
        assert!(![ledger(2, 1, [])].iter().collect::<Balanced>().is_good());
    }
}
