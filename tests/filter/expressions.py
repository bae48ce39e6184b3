"""Expressions and properties to try filters with: the edges by hand, and more by lot."""

from __future__ import annotations

import random
from typing import Final

# Texts that Java's readers of numbers and booleans take or refuse, and texts that are neither.
VALUES: Final = (
    *("0", "1", "5", "-5", "+5", "05", "6", "10", "-", "+", "--5", "5_0", " 5", "5 ", "5L", "\t5"),
    *("٥", "５", "-５", "𝟓", "²", "Ⅴ", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("0000000000000000000000000000005", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("9007199254740993", "3000000000", "5.0", "5.", ".5", ".", "5.5", "-5.5", "5e0", "5E+0", "5e", "e5", "5f", "5D"),
    *("5.0e0F", "1e400", "-1e400", "1e-400", "0.0", "-0.0", "NaN", "-NaN", "+Infinity", "Infinity", "-Infinity"),
    *("nan", "inf", "infinity", "0x1p3", "0X1.8P1", "-0x.8p0", "0x1", "0x1p99999", "0x1p-99999", "\x0b5.5\x00"),
    *(
        "true",
        "TRUE",
        "tRuE",
        "false",
        "yes",
        "true ",
        "eu",
        "EU",
        "europe",
        "neu",
        "é",
        "消息",
        "🚀",
        "'",
        "it's",
        " ",
    ),
)
NAMES: Final = ("a", "b", "A", "$c", "_d1")


def property_strings() -> list[bytes]:
    """Raw properties of messages, with every value at `a` and pairs of values at `a` and `b`."""
    found = [
        b"",
        b"b\x01x\x02",
        b"xa\x015\x02",
        b"a\x01\x02",
        b"a\x015\x02a\x01\x02",
        b"a\x015",
        b"a\x01x\x02a\x015\x02",
    ]
    found += [b"a\x01\xff\x02", b"a\x01\xe2\x82\x02b\x01\xff\xfe\x02", b"a\x01eu\xc3\x02", b"a\x015\x01\x02"]
    found += [f"a\x01{value}\x02".encode() for value in VALUES]
    lot = random.Random(11)
    for _ in range(40):
        names = lot.sample(NAMES, lot.randint(2, len(NAMES)))
        found.append("".join(f"{name}\x01{lot.choice(VALUES)}\x02" for name in names).encode())
    return found


EXPRESSIONS: Final = (
    # Numbers and their types.
    *("a = 5", "a <> 5", "a > 5", "a >= 5", "a < 5", "a <= 5", "5 = a", "5 <> a", "5 > a", "5 >= a", "5 < a", "5 <= a"),
    *("a = 5L", "a > 5l", "a = 2147483647", "a = 2147483648", "a >= 3000000000", "3000000000 = a", "a = 0", "a <> 0"),
    *("a = 5.0", "a > 5.0", "a >= 5.5", "a < 5.5", "a <= 5.5", "5.5 = a", "5.5 > a", "5.5 >= a", "a = .5", "a = 5.e0"),
    *("a = -5", "a > -5", "-5 < a", "a = - -5", "a = +5", "a = -+5", "a > -5.5", "a = -2147483648", "a = -2147483649"),
    *("a = 9223372036854775807", "a = 9223372036854775808", "a = -9223372036854775808", "a = 1e400", "a = 1e-400"),
    *("a = 0.0", "a > 0.0", "a = 4.9E-324", "a = 1.7976931348623157E308", "a = 5e0", "a = 5E+0", "a = 5e-0"),
    *("a = 007", "a = 0L", "a = 00", "a = 5ex", "a = 5.5.5", "a = 5..5", "a = 1_0", "a = 0x10", "a = 5d", "a = 05.5"),
    "a = 99999999999999999999999999999999999999",
    "a = 9007199254740993.0",
    # Properties against each other.
    *("a = b", "a <> b", "a > b", "a >= b", "a < b", "a <= b", "a > a", "a >= a", "a = a", "a <> a", "$c >= _d1"),
    # Literals against each other.
    *("1 = 1", "1 = 1.0", "1.0 = 1", "1 <> 2", "1 < 2", "2.5 > 2", "2 >= 2.0", "'a' = 'a'", "'a' = 'b'", "'5' = 5"),
    *(
        "5 = '5'",
        "'x' = 5",
        "5 = 'x'",
        "'5' = 5.0",
        "TRUE = TRUE",
        "TRUE = FALSE",
        "TRUE = 5",
        "5 = TRUE",
        "TRUE = 'true'",
    ),
    *(
        "'true' = TRUE",
        "'x' = FALSE",
        "TRUE = -5",
        "-5 = TRUE",
        "9007199254740993 = 9007199254740992.0",
        "3000000000 > 5",
    ),
    *("1 < 'a'", "'a' < 'b'", "TRUE > 1", "NULL = NULL", "NULL = a", "a = NULL", "a <> NULL", "NULL > 1", "1 = NULL"),
    # Booleans.
    *(
        "a = TRUE",
        "a = FALSE",
        "a <> TRUE",
        "TRUE = a",
        "FALSE = a",
        "TRUE <> a",
        "a = true",
        "a = fAlSe",
        "TRUE",
        "FALSE",
    ),
    *(
        "NULL",
        "NOT TRUE",
        "NOT FALSE",
        "NOT NULL",
        "a",
        "NOT a",
        "NOT NOT a",
        "a AND b",
        "a OR b",
        "a OR TRUE",
        "+a",
        "-a",
    ),
    *("a > TRUE", "TRUE IS NULL", "NULL IS NULL", "5 IS NULL", "'x' IS NOT NULL", "a IS TRUE", "(a) = (TRUE)", "NOT 5"),
    # Texts.
    *("a = 'eu'", "a <> 'eu'", "'eu' = a", "'eu' <> a", "a = ''", "a <> ''", "a = 'it''s'", "a = ''''", "a = '消息'"),
    *("a = '🚀'", "a = 'é'", "a = '\ufffd'", "a <> '\ufffd'", "a = 'eu\ufffd'", "a = '5'", "a > 'eu'", "'eu' < a"),
    *("a = 'unclosed", 'a = "eu"', "a = 'two\nlines'", "a = '--'", "a = '/* */'", "'eu'", "NOT 'eu'", "a = '''"),
    # IN.
    *(
        "a IN ('eu')",
        "a IN ('eu', 'EU','5')",
        "a NOT IN ('eu')",
        "a NOT IN ('5', '6', '10', '1', '0', 'eu')",
        "a in ('')",
    ),
    *(
        "a IN ()",
        "a IN (5)",
        "a IN ('eu',)",
        "a IN 'eu'",
        "5 IN ('5')",
        "'a' IN ('a')",
        "(a) IN ('eu')",
        "+a IN ('eu')",
    ),
    *("-a IN ('eu')", "a IN ('\ufffd', 'eu')", "(a = 5) IN ('true')", "NOT a IN ('eu')", "a IN ('eu') IN ('true')"),
    # BETWEEN.
    *("a BETWEEN 1 AND 5", "a BETWEEN 5 AND 5", "a BETWEEN 5 AND 1", "a NOT BETWEEN 1 AND 5", "a NOT BETWEEN 5 AND 1"),
    *(
        "a BETWEEN -5 AND 5",
        "a BETWEEN -5 AND -10",
        "a BETWEEN 1.5 AND 5.5",
        "a BETWEEN 1 AND 5.5",
        "a BETWEEN 2.5 AND 2",
    ),
    *(
        "a BETWEEN 1 AND 3000000000",
        "a BETWEEN b AND 5",
        "a BETWEEN 1 AND b",
        "a NOT BETWEEN b AND b",
        "5 BETWEEN a AND 6",
    ),
    *(
        "5 BETWEEN 1 AND 10",
        "50 BETWEEN 1 AND 10",
        "5 NOT BETWEEN 1 AND 10",
        "a BETWEEN NULL AND 5",
        "a BETWEEN 1 AND NULL",
    ),
    *(
        "a BETWEEN '1' AND '5'",
        "a BETWEEN '5' AND 1",
        "a BETWEEN TRUE AND FALSE",
        "a BETWEEN 1 AND 'x'",
        "a BETWEEN 1 AND",
    ),
    *("a BETWEEN 1", "a BETWEEN 1 OR 5", "a BETWEEN (1) AND (5)", "a BETWEEN (1 AND 5)", "a NOT BETWEEN NULL AND NULL"),
    *(
        "TRUE BETWEEN 1 AND 2",
        "'x' BETWEEN 1 AND 2",
        "-a BETWEEN 1 AND 2",
        "a BETWEEN 1 AND 5 AND b = 'x'",
        "a BETWEEN -a AND 5",
    ),
    # CONTAINS and its like.
    *("a CONTAINS 'eu'", "a NOT CONTAINS 'eu'", "a STARTSWITH 'eu'", "a NOT STARTSWITH 'eu'", "a ENDSWITH 'eu'"),
    *(
        "a NOT ENDSWITH 'eu'",
        "a CONTAINS ''",
        "a NOT CONTAINS ''",
        "a STARTSWITH ''",
        "a ENDSWITH ''",
        "a CONTAINS '息'",
    ),
    *(
        "a CONTAINS '\ufffd'",
        "a STARTSWITH 'eu\ufffd'",
        "a ENDSWITH '\ufffd'",
        "a NOT ENDSWITH '\ufffd'",
        "a CONTAINS 5",
    ),
    *(
        "a CONTAINS b",
        "'abc' CONTAINS 'b'",
        "'abc' STARTSWITH 'b'",
        "'abc' NOT ENDSWITH 'b'",
        "5 CONTAINS '5'",
        "5 NOT CONTAINS '6'",
    ),
    *(
        "TRUE CONTAINS 'T'",
        "NULL NOT CONTAINS 'x'",
        "(a = 5) CONTAINS 'x'",
        "(a = 5) NOT CONTAINS 'x'",
        "(a = 5) CONTAINS ''",
    ),
    *(
        "-a NOT CONTAINS 'x'",
        "-(a > 5) NOT CONTAINS 'x'",
        "a CONTAINS 'e' CONTAINS 'x'",
        "NOT a CONTAINS 'eu'",
        "a contains 'u'",
    ),
    *(
        "a CONTAINS 'e' = TRUE",
        "a CONTAINS '' = FALSE",
        "'abc' CONTAINS 'b' = 'x'",
        "('abc' CONTAINS 'b') > 5",
        "a STARTSWITH",
    ),
    # IS NULL.
    *(
        "a IS NULL",
        "a IS NOT NULL",
        "NOT a IS NULL",
        "-a IS NULL",
        "-5 IS NULL",
        "(a > 5) IS NULL",
        "(a > 5) IS NOT NULL",
    ),
    *(
        "a IS NULL IS NULL",
        "a IS NULL = TRUE",
        "a is not null",
        "a IS",
        "a IS NOT",
        "a IS NOT 5",
        "a IS 5",
        "a = 5 IS NULL",
    ),
    # NULL, failure and the order of evaluation.
    *("a = 5 AND b = 'x'", "a = 5 OR b = 'x'", "b = 'x' AND a = 5", "b = 'x' OR a = 5", "NOT (a = 5 AND b = 'x')"),
    *("NOT (a = 5 OR b = 'x')", "a > 5 AND b > 5", "a > 5 OR b > 5", "(a > 5 AND b > 5) OR $c IS NULL"),
    *(
        "(a > 5 AND b > 5) OR TRUE",
        "(a IS NULL AND b > 5) OR TRUE",
        "(b = 'x' AND a > 5) OR A IS NULL",
        "TRUE OR a > 5",
    ),
    *("a > 5 OR TRUE", "FALSE AND a > 5", "a > 5 AND FALSE", "NULL AND a > 5", "NULL OR a > 5", "NOT (NULL AND a > 5)"),
    *("NOT (a > 5 OR NULL)", "(NULL AND a > 5) OR TRUE", "NOT ((a OR b > 5) AND FALSE)", "NOT ((b OR a > 5) AND TRUE)"),
    *(
        "(NOT a AND a > 5) OR b IS NULL",
        "NOT (a OR a > 5) OR b IS NULL",
        "(a = 5) = (b = 5)",
        "(a = 5) = TRUE",
        "TRUE = (a = 5)",
    ),
    *(
        "(a = 5) = 'true'",
        "'true' = (a = 5)",
        "a = (b = 5)",
        "(a = 5) = a",
        "(a = 5) = 5",
        "5 = (a = 5)",
        "(a = 5) <> (a = 6)",
    ),
    *(
        "a = 5 = TRUE",
        "a = b = TRUE",
        "a = b = 'x'",
        "a = 'eu' <> FALSE",
        "(a = 'eu') = NULL",
        "(a IS NULL) = b",
        "-a = b",
    ),
    *(
        "b = -a",
        "-a = -b",
        "-a > 5",
        "5 < -a",
        "a < -b",
        "-(a > 5) < 5",
        "-(a > 5) = b",
        "b = -(a > 5)",
        "-(a > 5) IS NULL",
    ),
    *(
        "a < -(b > 5)",
        "(a > 5) > 5",
        "5 > (a = 5)",
        "a > 5 > 6",
        "a > b > 5",
        "-TRUE IS NULL",
        "-'x' = a",
        "-TRUE",
        "-NULL = a",
    ),
    # Precedence and parentheses.
    *(
        "a = 5 OR a = 6 AND b = 'x'",
        "(a = 5 OR a = 6) AND b = 'x'",
        "NOT a = 5",
        "NOT (a = 5)",
        "NOT a = 5 AND b = 'x'",
    ),
    *(
        "((((a = 5))))",
        "(a) > (5)",
        "()",
        "(a = 5",
        "a = 5)",
        "(a = 5))",
        "(a = 5) (b = 6)",
        "(a = 5 b = 6)",
        "a = (5",
        "+(a = 5)",
    ),
    *(
        "+ + a = 5",
        "- - -5 = a",
        "NOT + a",
        "+ NOT a",
        "- NOT a",
        "NOT -a",
        "NOT -5",
        "a = NOT b",
        "a = NOT TRUE",
        "a > NOT b",
    ),
    # Blanks, comments, case and names.
    *(
        "a=5",
        " \t\r\n\fa = 5 ",
        "a\x0b= 5",
        "a\xa0= 5",
        "a\u3000= 5",
        "\ufeffa = 5",
        "a = 5\x00",
        "\x00",
        "a/**/=/*x*/5",
    ),
    *(
        "a /* * / ** */ = 5",
        "a /* x = 5",
        "a = 5 /* x",
        "a = 5 /* x */",
        "a = /* 'x */ 5",
        "/**/",
        "a = 5 /***/ AND b = 'x'",
    ),
    *(
        "a = 5 -- x",
        "a = 5 -- x\n",
        "a = 5 -- x\nAND b = 'x'",
        "a = 5 --\rAND b = 'x'",
        "-- x\na = 5",
        "-- a",
        "a = 5 - 3",
        "a = --5",
    ),
    *(
        "a = --5\n5",
        "a AnD b oR NoT a",
        "a Is nUlL",
        "a bEtWeEn 1 aNd 5",
        "A = 5",
        "$c = 5",
        "_d1 = 5",
        "$ = 5",
        "_ = 5",
    ),
    *(
        "notes = 5",
        "note",
        "ands = 5 AND orange IS NULL",
        "NOTa = 5",
        "isnull",
        "nullable IS NULL",
        "in_a = 5",
        "true1 = 5",
    ),
    *(
        "é = 5",
        "aé = 5",
        "a.b = 5",
        "1a = 5",
        "a-b = 5",
        "a1$_ = 5 OR a = 5",
        "FALſE",
        "a Iſ NULL",
        "a ıS NULL",
        "a = 5 OR \u212a",
    ),
    # What follows a complete expression.
    *(
        "a = 5 b = 6",
        "a = 5 @",
        "a = 5 b @",
        "a = 5, b",
        "a = 5 'x'",
        "a = 5 'x",
        "a = 5 5",
        "a = 5 TRUE",
        "a = 5 NULL",
        "a b",
    ),
    *(
        "a LIKE 'x'",
        "a = 5 LIKE 'x'",
        "a = 5 AND",
        "a = 5 OR",
        "a = 5 NOT",
        "a = 5 NOT b",
        "a = 5 NOT IN",
        "a = 5 IN ('x')",
    ),
    *(
        "a = 5 = 6 7",
        "a = 5 ; DROP",
        "a = 5 #",
        "a == 5",
        "a != 5",
        "a <= > 5",
        "a < > 5",
        "a => 5",
        "a =< 5",
        "a = 5 ! b",
        "a = 5 b !",
    ),
    *(
        "a NOT = 5",
        "a NOT NULL",
        "a IS NOT NULL b",
        "a IN ('x') b",
        "a IN ('x' b)",
        "a BETWEEN 1 AND 5 b",
        "NOT",
        "AND",
        "a AND AND b",
    ),
    *(
        "",
        " ",
        "*",
        "TagA || TagB",
        "a ||b",
        "a && b",
        "a + 5 = 6",
        "a * 5 = 6",
        "(",
        ")",
        "'",
        "=",
        "a =",
        "= 5",
        "a <> <> b",
        "a, b",
    ),
)


def by_lot(seed: int, count: int) -> list[str]:
    """Expressions of every shape, most of them sound, always the same for a seed."""
    lot = random.Random(seed)
    return [_broken(lot, text) if lot.random() < 0.15 else text for text in (_truth(lot, 3) for _ in range(count))]


def _broken(lot: random.Random, text: str) -> str:
    words = text.split(" ")
    at = lot.randrange(len(words))
    match lot.randrange(4):
        case 0:
            del words[at]
        case 1:
            words.insert(at, lot.choice(("AND", "NOT", "(", ")", "5", "a", "=", "@", "'", "NULL", "--", "IS", ",")))
        case 2:
            words[at], words[-1] = words[-1], words[at]
        case _:
            words = words[:at]
    return " ".join(words)


def _truth(lot: random.Random, depth: int) -> str:
    if depth and lot.random() < 0.6:
        return lot.choice(
            (
                lambda: f"{_truth(lot, depth - 1)} AND {_truth(lot, depth - 1)}",
                lambda: f"{_truth(lot, depth - 1)} OR {_truth(lot, depth - 1)}",
                lambda: f"( {_truth(lot, depth - 1)} AND {_truth(lot, depth - 1)} )",
                lambda: f"( {_truth(lot, depth - 1)} OR {_truth(lot, depth - 1)} )",
                lambda: f"NOT ( {_truth(lot, depth - 1)} )",
                lambda: f"( {_truth(lot, depth - 1)} ) = {_value(lot, depth - 1)}",
                lambda: f"{_value(lot, depth - 1)} <> ( {_truth(lot, depth - 1)} )",
                lambda: f"( {_truth(lot, depth - 1)} ) IS NULL",
            )
        )()
    value = _value(lot, depth)
    return lot.choice(
        (
            lambda: f"{value} {lot.choice(('=', '<>'))} {_value(lot, depth)}",
            lambda: f"{_number(lot)} {lot.choice(('=', '<>', '>', '>=', '<', '<='))} {_number(lot)}",
            lambda: f"{value} IS {lot.choice(('', 'NOT '))}NULL",
            lambda: f"{_number(lot)} {lot.choice(('', 'NOT '))}BETWEEN {_number(lot)} AND {_number(lot)}",
            lambda: f"{_name(lot)} {lot.choice(('', 'NOT '))}IN ( {_text(lot)} , {_text(lot)} )",
            lambda: (
                f"{value} {lot.choice(('', 'NOT '))}{lot.choice(('CONTAINS', 'STARTSWITH', 'ENDSWITH'))} {_text(lot)}"
            ),
            lambda: lot.choice(("TRUE", "FALSE", "NULL", _name(lot), f"NOT {_name(lot)}")),
        )
    )()


def _value(lot: random.Random, depth: int) -> str:
    if depth and lot.random() < 0.1:
        return f"{lot.choice(('', '- '))}( {_truth(lot, depth - 1)} )"
    return lot.choice((_name, _name, _number, _text, lambda lot: lot.choice(("TRUE", "FALSE"))))(lot)


def _name(lot: random.Random) -> str:
    return lot.choice(("a", "a", "a", *NAMES))


def _number(lot: random.Random) -> str:
    numbers = ("0", "1", "5", "-5", "6", "10L", "5.5", "5.0", "-5.5", "2147483648", "-2147483648", ".5", "1e3", "- a")
    return lot.choice(("a", "b", lot.choice(numbers), lot.choice(numbers)))


def _text(lot: random.Random) -> str:
    return lot.choice(("'eu'", "'5'", "'true'", "'5.5'", "'x'", "''", "'消息'", "'e'"))


# (type, expression) of subscriptions, as a client gives them; None is null.
SUBSCRIPTIONS: Final[tuple[tuple[str | None, str | None], ...]] = (
    *(
        ("TAG", expression)
        for expression in (
            *(
                None,
                "",
                "*",
                " ",
                "* ",
                " *",
                "A",
                " A ",
                "A||B",
                "A || B",
                " A || B||  ",
                "A||A",
                "A||*",
                "||",
                "||||",
            ),
            *(
                "|| ||",
                "|||",
                "A|",
                "|A",
                "A|B",
                "A|||B",
                "||A",
                "A||",
                "A||||B",
                "\tA\n||\x00B\x1f",
                "\x7fA",
                "\u00a0A\u00a0",
            ),
            *(
                "\u3000A",
                "é||消息||🚀",
                "AaAa||BBBB||AaBB",
                "tag with blanks || 2",
                "a" * 500,
                "||".join(map(str, range(300))),
            ),
        )
    ),
    *((None, expression) for expression in (None, "", "*", "A || B", "||")),
    *(("", expression) for expression in (None, "", "*", "A || B", "||")),
    *(("SQL92", expression) for expression in (None, "")),
)
