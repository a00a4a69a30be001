//! Rust source as tokens, so that no rule takes a comment or a string for code.

use proc_macro2::{Delimiter, LexError, TokenStream, TokenTree};

/// One token; the ends of groups are tokens too.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Token {
    /// The word or the sign; `"` for any literal.
    pub(crate) text: String,
    /// Where it starts, from 1.
    pub(crate) line: usize,
    /// Where its group ends, for the token that opens one.
    pub(crate) line_end: usize,
}

/// Takes source text apart.
///
/// # Errors
/// If it is not Rust, with the line.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let stream: TokenStream = text.parse().map_err(|error: LexError| {
        (
            error.span().start().line,
            "cannot be read as Rust".to_owned(),
        )
    })?;
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    Ok(tokens)
}

/// The places where these tokens follow each other.
pub(crate) fn lines_of<'a>(
    tokens: &'a [Token],
    pattern: &'a [&'a str],
) -> impl Iterator<Item = usize> + 'a {
    tokens
        .windows(pattern.len())
        .filter(move |window| window.iter().map(|token| &token.text).eq(pattern))
        .map(|window| window[0].line)
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        let (line, line_end) = (tree.span().start().line, tree.span().end().line);
        let mut push = |text: &str, line| {
            tokens.push(Token {
                text: text.to_owned(),
                line,
                line_end,
            });
        };
        match tree {
            TokenTree::Ident(word) => push(&word.to_string(), line),
            TokenTree::Punct(sign) => push(sign.as_char().encode_utf8(&mut [0; 4]), line),
            TokenTree::Literal(_) => push("\"", line),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                push(open, line);
                flatten(group.stream(), tokens);
                tokens.push(Token {
                    text: close.to_owned(),
                    line: line_end,
                    line_end,
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_not_code() {
        let text = "// unsafe\nfn a() {\n \"unsafe\"; /* unsafe */\n unsafe {}\n}\n";
        let tokens = tokens(text).unwrap();
        assert_eq!(lines_of(&tokens, &["unsafe"]).collect::<Vec<_>>(), [4]);
        assert_eq!(lines_of(&tokens, &["fn", "a"]).collect::<Vec<_>>(), [2]);
        let body = tokens.iter().find(|token| token.text == "{").unwrap();
        assert_eq!((body.line, body.line_end), (2, 5));
    }

    #[test]
    fn what_is_not_rust_is_said() {
        assert_eq!(tokens("fn a() {\n}\n}\n").unwrap_err().0, 3);
    }
}
