//! Text with styles.

/// The style of words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Style {
    /// No emphasis.
    #[default]
    Plain,
    /// Words that a reader looks for.
    Strong,
    /// Words that a reader may skip.
    Faint,
    /// A command, a file, a counter.
    Code,
    /// Good news.
    Good,
    /// Bad news.
    Bad,
}

/// Words with their styles. A hard blank (U+00A0) keeps a line from breaking.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Text {
    /// The words in their order.
    pub spans: Vec<(Style, String)>,
}

impl Text {
    /// An empty text.
    pub fn new() -> Self {
        Self::default()
    }

    /// Words in one style.
    pub fn styled(style: Style, words: impl Into<String>) -> Self {
        Self::new().add(style, words)
    }

    /// Appends words in a style.
    #[must_use]
    pub fn add(mut self, style: Style, words: impl Into<String>) -> Self {
        let words = words.into();
        if !words.is_empty() {
            self.spans.push((style, words));
        }
        self
    }

    /// Appends plain words.
    #[must_use]
    pub fn plain(self, words: impl Into<String>) -> Self {
        self.add(Style::Plain, words)
    }

    /// Appends words that a reader looks for.
    #[must_use]
    pub fn strong(self, words: impl Into<String>) -> Self {
        self.add(Style::Strong, words)
    }

    /// Appends words that a reader may skip.
    #[must_use]
    pub fn faint(self, words: impl Into<String>) -> Self {
        self.add(Style::Faint, words)
    }

    /// Appends a command, a file or a counter.
    #[must_use]
    pub fn code(self, words: impl Into<String>) -> Self {
        self.add(Style::Code, words)
    }

    /// Appends words that are good or bad news.
    #[must_use]
    pub fn flag(self, good: bool, words: impl Into<String>) -> Self {
        self.add(if good { Style::Good } else { Style::Bad }, words)
    }

    /// The words without their styles.
    pub fn words(&self) -> String {
        self.spans.iter().map(|(_, words)| &**words).collect()
    }

    /// True if there are no words.
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }
}

impl From<&str> for Text {
    fn from(words: &str) -> Self {
        Self::new().plain(words)
    }
}

impl From<String> for Text {
    fn from(words: String) -> Self {
        Self::new().plain(words)
    }
}

/// Makes the blanks of a figure with its unit hard, so that a line does not break inside it.
pub fn unbroken(text: &str) -> String {
    text.replace(' ', "\u{a0}")
}
