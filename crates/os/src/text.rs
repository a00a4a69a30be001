//! Text from outside: names of interfaces, programs and files, and the words of another host.
//!
//! An ordinary user chooses such names. The kernel takes escape codes, line ends and `;` in them.
//! [`Foreign`] shows such text without steering a terminal or starting a new line. [`ShellWord`]
//! puts it into a command that a user may paste. [`of_bytes`] keeps a name that is not UTF-8 as text,
//! without loss.

use std::ffi::OsString;
use std::fmt::{self, Write};
use std::os::unix::ffi::OsStringExt;

/// The character of private use for byte 0. A byte that is no UTF-8 is 80 to ff in hexadecimal, and stands
/// as one of the last 128 characters of Unicode.
const BYTE: u32 = 0x10_ff00;

/// Bytes as text. A byte that is no UTF-8 becomes a character of private use, which no output shows as it
/// is. So do the bytes of such a character itself: no two names have one text.
pub fn of_bytes(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let escaped = |bytes: &[u8], text: &mut String| {
        let letters = bytes.iter().map(|byte| BYTE + u32::from(*byte));
        text.extend(letters.filter_map(char::from_u32));
    };
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match byte_of(letter) {
                Some(_) => escaped(letter.encode_utf8(&mut [0; 4]).as_bytes(), &mut text),
                None => text.push(letter),
            }
        }
        escaped(chunk.invalid(), &mut text);
    }
    text
}

/// The bytes that [`of_bytes`] was given, for the kernel.
pub fn to_bytes(text: &str) -> OsString {
    let mut bytes = Vec::with_capacity(text.len());
    for letter in text.chars() {
        match byte_of(letter) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(letter.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    OsString::from_vec(bytes)
}

fn byte_of(letter: char) -> Option<u8> {
    let byte = u8::try_from(u32::from(letter).checked_sub(BYTE)?).ok()?;
    (!byte.is_ascii()).then_some(byte)
}

/// Whether a character shows as itself: it steers no terminal, ends no line, is not invisible and
/// does not turn the direction of writing.
///
/// The renderers of reports have the same rule, `mpps_report::harmless`.
pub const fn is_clean(letter: char) -> bool {
    // Categories Cc, Cf, Zl and Zp of Unicode 16, what is drawn as nothing
    // (Default_Ignorable_Code_Point, unassigned ones included), the blank of braille, what is no
    // character (Noncharacter_Code_Point), and the bytes of `of_bytes`.
    let is_last_of_plane = letter as u32 & 0xfffe == 0xfffe;
    !is_last_of_plane
        && !matches!(letter,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}'
        | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fdd0}'..='\u{fdef}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}' | '\u{10ff80}'..='\u{10ffff}')
}

/// The character if it is clean. Otherwise a blank for a tab or a line end, and the replacement
/// character for any other.
pub const fn clean(letter: char) -> char {
    match letter {
        '\t' | '\n' | '\r' => ' ',
        _ if is_clean(letter) => letter,
        _ => char::REPLACEMENT_CHARACTER,
    }
}

/// Shows text of others with clean characters only, in one line.
///
/// ```
/// use mpps_os::text::Foreign;
/// assert_eq!(Foreign("eth\x1b[2J\n0").to_string(), "eth\u{fffd}[2J 0");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Foreign<T>(pub T);

impl<T: fmt::Display> fmt::Display for Foreign<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Cleaned(f), "{}", self.0)
    }
}

/// Lets only clean characters through.
struct Cleaned<'a, 'f>(&'a mut fmt::Formatter<'f>);

impl fmt::Write for Cleaned<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars()
            .try_for_each(|letter| self.0.write_char(clean(letter)))
    }
}

/// Shows a name as one word of a shell command.
///
/// A word of letters, digits and `_@%+=:,./-` stands as it is. Other clean text stands in single
/// quotes. A word with other bytes has the form `$'...'` of bash, zsh and POSIX 2024, with such
/// bytes as octal numbers. The result has clean characters only, and names that differ have words
/// that differ.
///
/// Quotes do not keep a program from taking `-x` for an option: see [`ShellWord::operand`].
///
/// ```
/// use mpps_os::text::ShellWord;
/// let name = ShellWord::new("a;id;$(id)");
/// assert_eq!(format!("ip link set dev {name} up"), "ip link set dev 'a;id;$(id)' up");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ShellWord<'a> {
    text: &'a str,
    is_operand: bool,
}

impl<'a> ShellWord<'a> {
    /// The word, of the text that [`of_bytes`] makes of a name, for a command that takes it whatever it
    /// begins with: the value behind `--option=`, `dev NAME` of `ip`, a path.
    pub fn new<T: AsRef<str> + ?Sized>(text: &'a T) -> Self {
        Self {
            text: text.as_ref(),
            is_operand: false,
        }
    }

    /// The last word of a command that has options, with `--` before a word that begins with `-`.
    pub fn operand<T: AsRef<str> + ?Sized>(text: &'a T) -> Self {
        Self {
            is_operand: true,
            ..Self::new(text)
        }
    }
}

impl fmt::Display for ShellWord<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain =
            |letter: char| letter.is_ascii_alphanumeric() || "_@%+=:,./-".contains(letter);
        if self.is_operand && self.text.starts_with('-') {
            f.write_str("-- ")?;
        }
        // zsh takes a word such as `=ls` for a path.
        let may_be_plain = !self.text.is_empty() && !self.text.starts_with('=');
        if may_be_plain && self.text.chars().all(is_plain) {
            f.write_str(self.text)
        } else if self.text.chars().all(is_clean) {
            write!(f, "'{}'", self.text.replace('\'', r"'\''"))
        } else {
            self.escaped(f)
        }
    }
}

impl ShellWord<'_> {
    /// `$'...'`. Quotes and `!`, which a shell may look for even there, are numbers as well.
    fn escaped(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$'")?;
        for letter in self.text.chars() {
            if is_clean(letter) && !"\\'!".contains(letter) {
                f.write_char(letter)?;
            } else if let Some(byte) = byte_of(letter) {
                octal(f, &[byte])?;
            } else {
                octal(f, letter.encode_utf8(&mut [0; 4]).as_bytes())?;
            }
        }
        f.write_str("'")
    }
}

fn octal(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "\\{byte:03o}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::process::Command;

    /// Words that no careless command survives.
    const HOSTILE: [&[u8]; 20] = [
        b"eth0",
        b"",
        b"a;id;$(id)",
        b"`id`",
        b"a b",
        b"it's",
        b"''",
        b"\\",
        b"$HOME",
        b"*",
        b"~",
        b"#x",
        b"!!",
        b"a|b&c>d<e",
        b"-n",
        b"\"\"",
        "caf\u{e9} \u{1f600}".as_bytes(),
        b"\x1b]0;it's!\x07\\",
        b"a\nb\tc\r\x7f",
        "\u{202e}a\u{9b}1\u{200b}".as_bytes(),
    ];

    /// DerivedGeneralCategory.txt of Unicode 16: Cc, Cf, Zl and Zp.
    const INVISIBLE: [(char, char); 23] = [
        ('\u{0}', '\u{1f}'),
        ('\u{7f}', '\u{9f}'),
        ('\u{ad}', '\u{ad}'),
        ('\u{600}', '\u{605}'),
        ('\u{61c}', '\u{61c}'),
        ('\u{6dd}', '\u{6dd}'),
        ('\u{70f}', '\u{70f}'),
        ('\u{890}', '\u{891}'),
        ('\u{8e2}', '\u{8e2}'),
        ('\u{180e}', '\u{180e}'),
        ('\u{200b}', '\u{200f}'),
        ('\u{2028}', '\u{202e}'),
        ('\u{2060}', '\u{2064}'),
        ('\u{2066}', '\u{206f}'),
        ('\u{feff}', '\u{feff}'),
        ('\u{fff9}', '\u{fffb}'),
        ('\u{110bd}', '\u{110bd}'),
        ('\u{110cd}', '\u{110cd}'),
        ('\u{13430}', '\u{1343f}'),
        ('\u{1bca0}', '\u{1bca3}'),
        ('\u{1d173}', '\u{1d17a}'),
        ('\u{e0001}', '\u{e0001}'),
        ('\u{e0020}', '\u{e007f}'),
    ];

    /// DerivedCoreProperties.txt of Unicode 16: Default_Ignorable_Code_Point.
    const IGNORABLE: [(char, char); 17] = [
        ('\u{ad}', '\u{ad}'),
        ('\u{34f}', '\u{34f}'),
        ('\u{61c}', '\u{61c}'),
        ('\u{115f}', '\u{1160}'),
        ('\u{17b4}', '\u{17b5}'),
        ('\u{180b}', '\u{180f}'),
        ('\u{200b}', '\u{200f}'),
        ('\u{202a}', '\u{202e}'),
        ('\u{2060}', '\u{206f}'),
        ('\u{3164}', '\u{3164}'),
        ('\u{fe00}', '\u{fe0f}'),
        ('\u{feff}', '\u{feff}'),
        ('\u{ffa0}', '\u{ffa0}'),
        ('\u{fff0}', '\u{fff8}'),
        ('\u{1bca0}', '\u{1bca3}'),
        ('\u{1d173}', '\u{1d17a}'),
        ('\u{e0000}', '\u{e0fff}'),
    ];

    /// The words that a shell makes of a line.
    fn words(shell: &str, line: &str) -> Option<Vec<Vec<u8>>> {
        let ended = Command::new(shell).args(["-c", line]).output().ok()?;
        assert!(
            ended.status.success() && ended.stderr.is_empty(),
            "{line}: {ended:?}"
        );
        let mut words: Vec<_> = ended
            .stdout
            .split(|byte| *byte == 0)
            .map(<[u8]>::to_vec)
            .collect();
        words.pop();
        Some(words)
    }

    #[test]
    fn a_shell_gets_each_word_back() {
        let mut all = HOSTILE.map(<[u8]>::to_vec).to_vec();
        all.extend([b"\xff\x80a'!".to_vec(), (1..=u8::MAX).collect()]);
        // The characters of bytes, a noncharacter and a private one are names as well.
        let odd = ["x\u{10ffff}7", "\u{10ff80}", "\u{fffe}\u{fdd0}", "\u{e000}"];
        all.extend(odd.map(|word| word.as_bytes().to_vec()));
        let line = |all: &[Vec<u8>]| {
            let quoted = all
                .iter()
                .map(|word| ShellWord::new(&of_bytes(word)).to_string());
            format!("printf '%s\\0' {}", quoted.collect::<Vec<_>>().join(" "))
        };
        // A `sh` of before POSIX 2024 does not know $'...'.
        let is_posix =
            |word: &Vec<u8>| std::str::from_utf8(word).is_ok_and(|word| word.chars().all(is_clean));
        let plain: Vec<_> = all.iter().filter(|word| is_posix(word)).cloned().collect();
        assert_eq!(plain.len(), 18);
        assert_eq!(words("sh", &line(&plain)).expect("there is a shell"), plain);
        // Not every machine has bash.
        if let Some(told) = words("bash", &line(&all)) {
            assert_eq!(told, all);
        }
    }

    #[test]
    fn a_harmless_name_stands_as_it_is() {
        for name in [
            "eth0",
            "enp1s0f0np0",
            "eth0.100",
            "br-4af",
            "a@b",
            "/run/x,y:z+1%2=3",
        ] {
            assert_eq!(ShellWord::new(name).to_string(), name);
            assert_eq!(ShellWord::operand(name).to_string(), name);
        }
        assert_eq!(ShellWord::operand("--all").to_string(), "-- --all");
        assert_eq!(ShellWord::operand("-;").to_string(), "-- '-;'");
    }

    #[test]
    fn the_invisible_and_the_turning_are_not_clean() {
        for (first, last) in INVISIBLE.into_iter().chain(IGNORABLE) {
            for letter in first..=last {
                let shown = clean(letter);
                let is_blank = "\t\n\r".contains(letter) && shown == ' ';
                assert!(
                    is_blank || shown == char::REPLACEMENT_CHARACTER,
                    "{letter:?}"
                );
            }
        }
        for letter in [
            '\u{2800}',
            '\u{fdd0}',
            '\u{fdef}',
            '\u{ffff}',
            '\u{1fffe}',
            '\u{fffff}',
        ] {
            assert!(!is_clean(letter), "{letter:?}");
        }
        // Neighbours of what is not, marks that show, and what this program draws with.
        for letter in "a \u{a0}\u{e9}→█\u{fffd}\u{1f600}\u{301}\u{606}\u{6de}\u{710}\u{1810}\u{2801}\u{fffc}\u{110be}\u{e000}\u{fdcf}\u{fdf0}".chars() {
            assert_eq!(clean(letter), letter, "{letter:?}");
        }
    }

    #[test]
    fn names_that_differ_have_texts_that_differ() {
        let bytes = [
            &b"x\xff"[..],
            b"x\xfe",
            b"x\x80\xc3",
            "x\u{10ffff}".as_bytes(),
            b"x",
        ];
        let texts = bytes.map(of_bytes);
        assert_eq!(texts[0], "x\u{10ffff}");
        assert_eq!(texts[3].chars().count(), 5);
        assert_eq!(Foreign(&texts[1]).to_string(), "x\u{fffd}");
        assert_eq!(ShellWord::new(&texts[1]).to_string(), r"$'x\376'");
        assert_eq!(
            ShellWord::new(&texts[3]).to_string(),
            r"$'x\364\217\277\277'"
        );
        let all: std::collections::BTreeSet<&String> = texts.iter().collect();
        assert_eq!(all.len(), texts.len());
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(to_bytes(&of_bytes(&bytes)).into_vec(), bytes);
        }

        #[test]
        fn whatever_is_shown_is_clean(bytes in prop::collection::vec(any::<u8>(), 0..40), text: String) {
            let is_all_clean = |shown: &str| shown.chars().all(is_clean);
            prop_assert!(is_all_clean(&Foreign(&text).to_string()));
            prop_assert!(is_all_clean(&Foreign(String::from_utf8_lossy(&bytes)).to_string()));
            for word in [of_bytes(&bytes), text] {
                prop_assert!(is_all_clean(&ShellWord::new(&word).to_string()));
            }
        }
    }
}
