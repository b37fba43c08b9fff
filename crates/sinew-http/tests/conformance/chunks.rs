//! Bodies in chunks.

use crate::table::{Case, check, refused_within, served};
use sinew_http::Limits;

/// A request with this chunked body.
fn chunked(body: &str) -> String {
    format!("POST / HTTP/1.1|Host: a|Transfer-Encoding: chunked||{body}")
}

fn body(claim: &str, sent: &str, seen: &str) -> Case {
    served(claim, chunked(sent), &[&format!("POST / [{seen}]")])
}

fn bad(claim: &str, sent: &str) -> Case {
    refused_within(claim, 400, chunked(sent))
}

#[test]
fn chunks_are_put_together() {
    check(
        Limits::default(),
        &[
            body("a body may have one chunk", "5|hello|0||", "hello"),
            body("a body may have several chunks", "5|hello|1| |5|world|0||", "hello world"),
            body("a body may have no chunk", "0||", ""),
            body("sizes are hexadecimal", "a|0123456789|0||", "0123456789"),
            body("sizes may be in upper case", "A|0123456789|0||", "0123456789"),
            body("sizes have more than one digit", "10|0123456789abcdef|0||", "0123456789abcdef"),
            body("sizes may have zeros before them", "0005|hello|000||", "hello"),
            body("the end of a line within a chunk is data", "4|a|b|0||", "a\r\nb"),
            body("a chunk may look like the end", "5|0|||0||", "0\r\n\r\n"),
            served(
                "requests after the end are served",
                chunked("2|hi|0||GET /b HTTP/1.1|Host: a||"),
                &["POST / [hi]", "GET /b []"],
            ),
            served(
                "a body that nobody reads is skipped",
                "POST /unread HTTP/1.1|Host: a|Transfer-Encoding: chunked||5|hello|0||",
                &["POST /unread"],
            ),
        ],
    );
}

#[test]
fn extensions_are_ignored() {
    check(
        Limits::default(),
        &[
            body("an extension has a name", "5;a|hello|0||", "hello"),
            body("an extension may have a value", "5;a=b|hello|0||", "hello"),
            body("an extension may have a quoted value", "5;a=\"b; c\"|hello|0||", "hello"),
            body("a quoted value may have escapes", "5;a=\"b\\\"c\"|hello|0||", "hello"),
            body("a quoted value may be empty", "5;a=\"\"|hello|0||", "hello"),
            body("there may be several extensions", "5;a;b=c;d|hello|0||", "hello"),
            body("space around an extension is allowed", "5 ; a = b ;\tc|hello|0||", "hello"),
            body("the last chunk may have an extension", "5|hello|0;a=b||", "hello"),
            bad("an extension without a name is refused", "5;|hello|0||"),
            bad("an extension without a name and with a value is refused", "5;=a|hello|0||"),
            bad("an extension with an empty value is refused", "5;a=|hello|0||"),
            bad("two semicolons are refused", "5;;a|hello|0||"),
            bad("a quoted value that does not end is refused", "5;a=\"b|hello|0||"),
            bad("a quoted value that ends with a backslash is refused", "5;a=\"b\\|hello|0||"),
            bad("something after a quoted value is refused", "5;a=\"b\"c|hello|0||"),
            bad("a name of two words is refused", "5;a b|hello|0||"),
            bad("space after an extension is refused", "5;a |hello|0||"),
            bad("a NUL in an extension is refused", "5;a=\0|hello|0||"),
            bad("a control character in a quoted value is refused", "5;a=\"\x01\"|hello|0||"),
            bad("a line feed in an extension is refused", "5;a\nb|hello|0||"),
            bad("a CR in an extension is refused", "5;a\rb|hello|0||"),
            bad("a line feed in a quoted value is refused", "5;a=\"\n\"|hello|0||"),
            bad("a long extension is refused", &format!("5;{}|hello|0||", "a".repeat(300))),
            bad(
                "many extensions are refused",
                &format!("{}0||", format!("1;{}|a|", "b".repeat(200)).repeat(100)),
            ),
        ],
    );
}

#[test]
fn trailers_are_ignored() {
    check(
        Limits::default(),
        &[
            body("a trailer is ignored", "5|hello|0|A: b||", "hello"),
            body("trailers are ignored", "5|hello|0|A: b|c:d|E:||", "hello"),
            body("a trailer may have characters beyond ASCII", "5|hello|0|A: \u{e4}||", "hello"),
            body("a length in a trailer is none", "5|hello|0|Content-Length: 100||", "hello"),
            body("a coding in a trailer is none", "5|hello|0|Transfer-Encoding: gzip||", "hello"),
            body("a Host in a trailer is none", "5|hello|0|Host: b||", "hello"),
            bad("a trailer without a colon is refused", "5|hello|0|A||"),
            bad("a trailer without a name is refused", "5|hello|0|: b||"),
            bad("a trailer that goes on is refused", "5|hello|0|A: b| c||"),
            bad("a space before the colon of a trailer is refused", "5|hello|0|A : b||"),
            bad("a first trailer after a space is refused", "5|hello|0| A: b||"),
            bad("a trailer that ends with LF is refused", "5|hello|0|A: b\n|"),
            bad("a CR in a trailer is refused", "5|hello|0|A: b\rc||"),
            bad("a NUL in a trailer is refused", "5|hello|0|A: \0||"),
            bad("a DEL in a trailer is refused", "5|hello|0|A: \x7f||"),
            bad("a trailer's name that is not ASCII is refused", "5|hello|0|\u{e4}: b||"),
            bad("an end with LF is refused", "5|hello|0|\n"),
            bad(
                "a request instead of the end is refused",
                "5|hello|0|GET /smuggled HTTP/1.1|Host: a||",
            ),
            bad("a long trailer is refused", &format!("0|A: {}||", "b".repeat(17 * 1024))),
            bad(
                "many trailers are refused",
                &format!("0|{}|", "A: bbbbbbbbbbbbbbbbb|".repeat(1000)),
            ),
        ],
    );
}

#[test]
fn malformed_chunks_are_refused() {
    check(
        Limits::default(),
        &[
            bad("a size that is none is refused", "g|hello|0||"),
            bad("no size is refused", "|hello|0||"),
            bad("an extension without a size is refused", ";a|hello|0||"),
            bad("a space before a size is refused", " 5|hello|0||"),
            bad("a space after a size is refused", "5 |hello|0||"),
            bad("a tab after a size is refused", "5\t|hello|0||"),
            bad("a form feed after a size is refused", "5\x0c;a|hello|0||"),
            bad("a size with a prefix is refused", "0x5|hello|0||"),
            bad("a size with a suffix is refused", "5h|hello|0||"),
            bad("a size with a plus is refused", "+5|hello|0||"),
            bad("a size with a minus is refused", "-5|hello|0||"),
            bad("a size with an underscore is refused", "0_5|hello|0||"),
            bad("a size with a comma is refused", "5,|hello|0||"),
            bad("two sizes are refused", "5 5|hello|0||"),
            bad("a size of too many digits is refused", "10000000000000005|hello|0||"),
            bad("many zeros are refused", "00000000000000005|hello|0||"),
            bad("a size that is not ASCII is refused", "\u{665}|hello|0||"),
            bad("a NUL after a size is refused", "5\0|hello|0||"),
            bad("a line of a size that ends with LF is refused", "5\nhello|0||"),
            bad("a line of a size that ends with CR is refused", "5\rhello|0||"),
            bad("a line of a size that ends with CR CR LF is refused", "5\r\r\nhello|0||"),
            bad("a chunk that is too long is refused", "5|hello!|0||"),
            bad("a chunk that is too short is refused", "5|hell|0||"),
            bad("a chunk that ends with LF is refused", "5|hello\n0||"),
            bad("a chunk that ends with CR is refused", "5|hello\r0||"),
            bad("a chunk without an end is refused", "5|hello0||"),
            bad("a chunk that ends with two CRs is refused", "5|hello\r\r\n0||"),
            bad("an empty line between chunks is refused", "5|hello||0||"),
            refused_within(
                "the largest size there is is too large",
                413,
                chunked("ffffffffffffffff|hello|0||"),
            ),
            refused_within(
                "a second chunk of that size is too large",
                413,
                chunked("5|hello|fffffffffffffffb|hello|0||"),
            ),
        ],
    );
}
