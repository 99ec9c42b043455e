//! The `$filter` language: `eq`, `ne`, `ge`, `le`, `and`, `or`, parentheses, and literals.

use super::super::api::answer::Refusal;
use super::super::wire::{self, Ticks};

/// A filter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Expr {
    Compare { field: String, op: Op, literal: Literal },
    And(Vec<Expr>),
    Or(Vec<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Eq,
    Ne,
    Ge,
    Le,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    /// Millionths.
    Number(i128),
    Text(String),
    Instant(Ticks),
}

/// Parentheses nested deeper than this are refused, so that no query can exhaust the stack.
const MAX_DEPTH: usize = 50;

/// Parses a filter.
pub(crate) fn filter(text: &str) -> Result<Expr, Refusal> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0 };
    let expr = parser.or(0)?;
    match parser.peek() {
        None => Ok(expr),
        Some(token) => Err(unexpected(token)),
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Token {
    Open,
    Close,
    Word(String),
    Literal(Literal),
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self) -> Result<Token, Refusal> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token.ok_or_else(|| Refusal::bad_request("The filter ends too early"))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    fn or(&mut self, depth: usize) -> Result<Expr, Refusal> {
        let mut parts = vec![self.and(depth)?];
        while self.take_word("or") {
            parts.push(self.and(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::Or(parts) })
    }

    fn and(&mut self, depth: usize) -> Result<Expr, Refusal> {
        let mut parts = vec![self.primary(depth)?];
        while self.take_word("and") {
            parts.push(self.primary(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expr::And(parts) })
    }

    fn primary(&mut self, depth: usize) -> Result<Expr, Refusal> {
        match self.take()? {
            Token::Open if depth >= MAX_DEPTH => {
                Err(Refusal::bad_request("The filter is nested too deeply"))
            }
            Token::Open => {
                let expr = self.or(depth + 1)?;
                match self.take()? {
                    Token::Close => Ok(expr),
                    token => Err(unexpected(&token)),
                }
            }
            Token::Word(field) if is_name(&field) => {
                let op = match self.take()? {
                    Token::Word(word) => op(&word)?,
                    token => return Err(unexpected(&token)),
                };
                match self.take()? {
                    Token::Literal(literal) => Ok(Expr::Compare { field, op, literal }),
                    token => Err(unexpected(&token)),
                }
            }
            token => Err(unexpected(&token)),
        }
    }
}

fn op(word: &str) -> Result<Op, Refusal> {
    match word {
        "eq" => Ok(Op::Eq),
        "ne" => Ok(Op::Ne),
        "ge" => Ok(Op::Ge),
        "le" => Ok(Op::Le),
        _ => Err(Refusal::bad_request(format!(
            "The operator '{word}' is not known; use eq, ne, ge, le, and, or"
        ))),
    }
}

fn is_name(word: &str) -> bool {
    word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && !matches!(word, "and" | "or" | "eq" | "ne" | "ge" | "le" | "not")
}

fn unexpected(token: &Token) -> Refusal {
    let text = match token {
        Token::Open => "(".to_owned(),
        Token::Close => ")".to_owned(),
        Token::Word(word) => word.clone(),
        Token::Literal(literal) => format!("{literal:?}"),
    };
    Refusal::bad_request(format!("The filter is not understood at '{text}'"))
}

fn tokens(text: &str) -> Result<Vec<Token>, Refusal> {
    let mut found = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        match first {
            '(' | ')' => {
                found.push(if first == '(' { Token::Open } else { Token::Close });
                rest = &rest[1..];
            }
            '\'' => {
                let (content, after) = quoted(rest)?;
                found.push(Token::Literal(Literal::Text(content)));
                rest = after;
            }
            _ => {
                let end = rest
                    .find(|c: char| c.is_whitespace() || matches!(c, '(' | ')' | '\''))
                    .unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                if after.starts_with('\'') {
                    if word != "datetime" {
                        return Err(Refusal::bad_request(format!(
                            "The literal {word}'...' is not known; dates are datetime'...'"
                        )));
                    }
                    let (content, behind) = quoted(after)?;
                    let at = content.strip_suffix('Z').and_then(|_| Ticks::parse(&content, false));
                    let at = at.ok_or_else(|| {
                        Refusal::bad_request(format!("'{content}' is no ISO 8601 time of UTC"))
                    })?;
                    found.push(Token::Literal(Literal::Instant(at)));
                    rest = behind;
                } else {
                    found.push(word_token(word)?);
                    rest = after;
                }
            }
        }
        rest = rest.trim_start();
    }
    Ok(found)
}

fn word_token(word: &str) -> Result<Token, Refusal> {
    let literal = match word {
        "null" => Literal::Null,
        "true" => Literal::Bool(true),
        "false" => Literal::Bool(false),
        _ if word.starts_with(|c: char| c.is_ascii_digit() || c == '-') => {
            let number = wire::scaled(word, 6).ok_or_else(|| {
                Refusal::bad_request(format!("'{word}' is no number that a filter takes"))
            })?;
            Literal::Number(i128::from(number))
        }
        _ => return Ok(Token::Word(word.to_owned())),
    };
    Ok(Token::Literal(literal))
}

/// A text in single quotes, in which `''` is one quote, and what follows it.
fn quoted(text: &str) -> Result<(String, &str), Refusal> {
    let mut content = String::new();
    let mut rest = &text[1..];
    loop {
        let end = rest
            .find('\'')
            .ok_or_else(|| Refusal::bad_request("A text in the filter has no closing quote"))?;
        content.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(more) => {
                content.push('\'');
                rest = more;
            }
            None => return Ok((content, rest)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(field: &str, op: Op, literal: Literal) -> Expr {
        Expr::Compare { field: field.to_owned(), op, literal }
    }

    #[test]
    fn and_binds_tighter_than_or_and_parentheses_bind_tightest() {
        let one = || compare("A", Op::Eq, Literal::Number(1_000_000));
        let two = || compare("B", Op::Ne, Literal::Text("it's".to_owned()));
        let three = || compare("C", Op::Ge, Literal::Null);
        assert_eq!(
            filter("A eq 1 or B ne 'it''s' and C ge null").unwrap(),
            Expr::Or(vec![one(), Expr::And(vec![two(), three()])])
        );
        assert_eq!(
            filter("(A eq 1 or B ne 'it''s')and C ge null").unwrap(),
            Expr::And(vec![Expr::Or(vec![one(), two()]), three()])
        );
    }

    #[test]
    fn a_date_is_exact_to_its_seventh_digit() {
        let at = Ticks::parse("2026-01-02T03:04:05.1234567Z", false).unwrap();
        assert_eq!(
            filter("D le datetime'2026-01-02T03:04:05.1234567Z'").unwrap(),
            compare("D", Op::Le, Literal::Instant(at))
        );
    }

    #[test]
    fn nonsense_is_refused() {
        let deep = format!("{}A eq 1{}", "(".repeat(60), ")".repeat(60));
        for text in [
            "",
            "A",
            "A eq",
            "A gt 1",
            "1 eq A",
            "A eq 1 B",
            "(A eq 1",
            "A eq 'open",
            "A eq date'2026-01-01'",
            "A eq datetime'soon'",
            "A eq datetime'2026-01-02T03:04:05'",
            "A eq datetime'2026-01-02T04:04:05+01:00'",
            "A eq 1 and",
            "not A eq 1",
            "A eq 1e5",
            deep.as_str(),
        ] {
            assert!(filter(text).is_err(), "{text}");
        }
    }
}
