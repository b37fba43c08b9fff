#!/usr/bin/env bash
# Counts phrases that make comments hard to read, such as a pronoun or "what is ..." where a noun
# exists, and fails if there are too many. The count cannot tell whether a sentence is clear: a
# reader decides that. The option -v lists the lines.
source "$(dirname "$0")/lib.sh"
most=10 # in a thousand lines of comments
phrases="\b(who|whom|whoever|somebody|nobody|anybody|everybody)\b|\bwhat (is|are|was|were|has|have|it|they)\b"
phrases+="|\bth(at|ose) of\b|\bthe latter\b|^ *the same\b|\bso many\b"
comments() { git ls-files '*.rs' | xargs grep -hoP '(^|\s)//[/!]?\K.*'; }
total=$(comments | wc -l)
found=$(comments | grep -ciP "$phrases" || true)
if [ "${1:-}" = -v ]; then
    git ls-files '*.rs' | xargs grep -nP "(^|\s)//[/!]?.*($phrases)" || true
fi
echo "$found of $total lines of comments have such a phrase; the limit is $((total * most / 1000))"
[ "$((found * 1000))" -le "$((total * most))" ]
