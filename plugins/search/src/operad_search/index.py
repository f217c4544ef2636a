"""The ranked index: BM25 over id, title, tags and description, then a ranking by names.

In this inverted index, postings contain a precomputed weight of one byte, so that a query only adds numbers. Rare
words of a query are processed first. A frequent word that can no longer bring a new operation to the top is only
looked up for the operations that already have a score. The best operations are then sorted by how much of the
query their name or title contains, and how little else it contains: a name that equals the query comes first.
"""

from __future__ import annotations

import heapq
import math
import re
import sys
from array import array
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Sequence

import attrs

from operad import OperationSpec

_WORD = re.compile(r"[^\W_]+")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")

_ID, _TITLE, _TAG, _DESCRIPTION, _BEYOND = 3.0, 3.0, 1.0, 1.0, 0.25
"""The value of a word in each field; ``_BEYOND`` is for words after the first `_HEAD` words of a description."""
_HEAD = 25
_HEAD_OF = re.compile(rf"\W*(?:\w+(?:\W+|\Z)){{0,{_HEAD}}}")
_K, _B, _USUAL_LENGTH, _LONGEST = 1.2, 0.5, 20.0, 40
"""The parameters of BM25. The usual length is fixed, so that weights stay correct when operations are added. No
text counts as longer than `_LONGEST` words, so that a long description does not outweigh an exact title."""
_PREFIX = 0.6
"""The value of a word that only begins with a word of the query."""
_MAX_PREFIXED = 64
_MIN_PREFIX = 2
_CACHED = 10_000
_FEW = 4096
"""Words of at most this many operations are always added to all scores."""
_TYPO = 0.5
"""The value of a word that is one edit away from a word of the query without any other match."""
_SHORTEST_TYPO = 4
_BUDGET = 50_000
"""The number of weights that one query adds up; further words, the most frequent ones, only reorder the best."""
_REORDERED = 1_000
_RANKED = 60
"""The number of best operations that are compared by their names."""
_NAMED = 2.0
"""The value of a name that equals the query, in units of the best score."""

_STOP = frozenset(
    "a an and are as at by for from how i in into is it my of on or that the this to what with".split()  # noqa: SIM905  # read as a sentence
)


def words(text: str) -> Iterator[str]:
    """Yield the words of a text as they are indexed: lower case, singular, with names such as camelCase split."""
    for word in _WORD.findall(text):
        yield from _terms(word)


def _terms(word: str) -> tuple[str, ...]:
    if not word.isascii():  # camelCase is a habit of ASCII names
        return (_singular(word.casefold()),)
    return tuple(_singular(part.lower()) for part in _PART.findall(word))


def _singular(word: str) -> str:
    if len(word) <= 3 or not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return f"{word[:-3]}y" if word.endswith("ies") and len(word) > 4 else word[:-1]


@attrs.define(eq=False)
class _Postings:
    """The operations that contain a word, in ascending order, and the weight of the word in each (0 to 255)."""

    documents: array[int]
    weights: bytearray

    def weight(self, document: int) -> int:
        at = bisect_left(self.documents, document)
        return self.weights[at] if at < len(self.documents) and self.documents[at] == document else 0


@attrs.frozen(eq=False)
class _Word:
    """A word of a query, with the words of the index that match it, and a table of the value of each weight."""

    postings: list[tuple[_Postings, list[float]]]
    size: int
    bound: float
    factors: dict[str, float]
    """How well each matching word of the index matches, from 0 to 1."""

    def stands_for(self, term: str) -> float:
        """Return how well a word of a name matches this word of the query, from 0 to 1."""
        return self.factors.get(term, 0.0)

    def add_to(self, scores: dict[int, float]) -> None:
        """Add this word's weight to the score of every operation that has the word."""
        share = self._shares()
        if not scores:
            scores.update(share)
            return
        get = scores.get
        for document, value in share.items():
            scores[document] = get(document, 0.0) + value

    def raise_scores(self, scores: dict[int, float]) -> None:
        """Add this word's weight to the scores that exist; add no other operation."""
        if len(scores) * 8 > self.size:
            share = self._shares()
            for document in scores.keys() & share.keys():
                scores[document] += share[document]
            return
        for document in scores:
            scores[document] += max(table[postings.weight(document)] for postings, table in self.postings)

    def _shares(self) -> dict[int, float]:
        shares: dict[int, float] = {}
        for postings, table in self.postings:
            values = map(table.__getitem__, postings.weights)
            if not shares:
                shares = dict(zip(postings.documents, values, strict=True))
                continue
            for document, value in zip(postings.documents, values, strict=True):
                if value > shares.get(document, 0.0):
                    shares[document] = value
        return shares


class RankedIndex:
    """An index of operation specs for ranked search. Specs can be added and removed.

    The weights of a removed operation stay in memory; the registry makes a new index when many have changed.
    """

    def __init__(self, specs: Iterable[OperationSpec] = ()) -> None:
        # Text and bytes, which the garbage collector of Python does not count: for objects it would pass over the
        # whole heap while the index of a large registry grows. Numbers of operations take four bytes each.
        self._documents: dict[str, bytearray] = {}
        self._weights: dict[str, bytearray] = {}
        self._ids: list[str] = []
        self._titles: list[str | None] = []
        self._numbers: dict[str, int] = {}
        self._dead: set[int] = set()
        self._vocabulary: list[str] | None = None
        self._terms: dict[str, str] = {}
        """A cache: word of a spec -> its terms in the index, separated by spaces."""
        for spec in specs:
            self.add(spec)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, spec: OperationSpec) -> None:
        """Add a spec, or replace the spec with the same id."""
        self.remove(spec.id)
        number = len(self._ids)
        self._ids.append(spec.id)
        self._titles.append(spec.title)
        self._numbers[spec.id] = number
        counts: dict[str, float] = {}
        length = 0
        cache = self._terms
        if len(cache) > _CACHED:
            cache.clear()
        for text, value in _fields(spec):
            for word in _WORD.findall(text):
                terms = cache.get(word)
                if terms is None:
                    terms = cache[word] = " ".join(_terms(word))
                for term in terms.split():
                    length += 1
                    counts[term] = counts.get(term, 0.0) + value
        norm = _K * (1 - _B + _B * min(length, _LONGEST) / _USUAL_LENGTH)
        documents, weights, packed = self._documents, self._weights, number.to_bytes(4, sys.byteorder)
        for term, count in counts.items():
            if term not in weights:
                documents[term], weights[term] = bytearray(), bytearray()
                if self._vocabulary is not None:
                    insort(self._vocabulary, term)
            documents[term] += packed
            weights[term].append(int(255 * count / (count + norm)) or 1)

    def remove(self, operation_id: str) -> None:
        """Remove the spec of an operation. An unknown id is ignored."""
        number = self._numbers.pop(operation_id, None)
        if number is not None:
            self._dead.add(number)

    def search(self, query: str, limit: int) -> list[str]:
        """Return the ids of at most ``limit`` operations that match a query, best first.

        Operations that match equally well are in the order in which they were added. The list is empty if no
        operation matches, or ``limit`` is less than 1.
        """
        if limit < 1:
            return []
        found = sorted(self._words(query), key=lambda word: -word.bound)
        if not found:
            return []
        scores: dict[int, float] = {}
        added = 0
        for index, word in enumerate(found):
            if len(scores) >= limit and word.size > _FEW:
                rest = sum(other.bound for other in found[index:])
                least = heapq.nlargest(limit, scores.values())[-1]
                if added + word.size > _BUDGET:
                    scores = {document: scores[document] for document in _best(scores, max(limit, _REORDERED))}
                    word.raise_scores(scores)
                    continue
                if least >= rest:  # nothing new can come to the top; and what cannot reach it may go
                    scores = {document: score for document, score in scores.items() if score + rest >= least}
                    word.raise_scores(scores)
                    continue
            added += word.size
            word.add_to(scores)
            for dead in self._dead:
                scores.pop(dead, None)
        best = _best(scores, max(limit, _RANKED))
        top = scores[best[0]] if best else 0.0
        ranked = {document: scores[document] + top * _NAMED * self._named(document, found) for document in best}
        return [self._ids[document] for document in _best(ranked, limit)]

    def _named(self, document: int, query: Sequence[_Word]) -> float:
        """Return how well the name or the title of an operation matches a query, from 0 to 1."""
        weight = sum(word.bound for word in query)
        fits = 0.0
        namespace, _, name = self._ids[document].partition(".")
        for text in (f"{namespace} {name}", name, self._titles[document] or ""):
            terms = _content(words(text))
            if not terms:
                continue
            said = [max((word.stands_for(term) for term in terms), default=0.0) for word in query]
            covered = sum(share * word.bound for share, word in zip(said, query, strict=True)) / weight
            used = sum(any(word.stands_for(term) for word in query) for term in terms) / len(terms)
            fits = max(fits, covered * covered * used)
        return fits

    def _words(self, query: str) -> Iterator[_Word]:
        terms = dict.fromkeys(words(query))
        for term in _content(terms) or terms:
            matches = self._matches(term)
            if matches:
                yield self._word(matches)
            else:
                for part in self._split(term):
                    yield self._word(self._matches(part))

    def _word(self, matches: Sequence[tuple[str, float]]) -> _Word:
        found = [(self._held(term), factor) for term, factor in matches]
        size = sum(len(postings.documents) for postings, _ in found)
        count = len(self._numbers)
        idf = math.log(1 + max(count - size + 0.5, 0.5) / (size + 0.5))
        tables = [(postings, [idf * factor * weight for weight in range(256)]) for postings, factor in found]
        return _Word(tables, size, max(table[-1] for _, table in tables), dict(matches))

    def _held(self, term: str) -> _Postings:
        return _Postings(array("I", bytes(self._documents[term])), self._weights[term])

    def _matches(self, term: str) -> list[tuple[str, float]]:
        """Return the words of the index that match a word of a query, with their values from 0 to 1.

        They are the word itself and words that begin with it, the shortest first, else words one edit away.
        """
        matches = [(term, 1.0)] if term in self._weights else []
        if len(term) < _MIN_PREFIX:
            return matches
        if self._vocabulary is None:
            self._vocabulary = sorted(self._weights)
        vocabulary = self._vocabulary
        start = bisect_left(vocabulary, term)
        end = bisect_left(vocabulary, term + "\U0010ffff", start)
        longer = [word for word in vocabulary[start:end] if word != term]
        if len(longer) > _MAX_PREFIXED:
            longer = heapq.nsmallest(_MAX_PREFIXED, longer, key=len)
        matches += ((word, _PREFIX * len(term) / len(word)) for word in longer)
        return matches or [(word, _TYPO) for word in sorted(_one_edit(term)) if word in self._weights]

    def _split(self, term: str) -> tuple[str, ...]:
        """Return the two words of the index that ``term`` consists of, such as ``pullrequest``, or ``()``."""
        for at in range(len(term) - 2, 1, -1):
            parts = term[:at], _singular(term[at:])
            if all(part in self._weights for part in parts):
                return parts
        return ()


def _content(terms: Iterable[str]) -> list[str]:
    """Return the words that are not stop words, each once."""
    return [term for term in dict.fromkeys(terms) if term not in _STOP]


def _one_edit(term: str) -> set[str]:
    """Return the words that one insertion, deletion, replacement or swap of letters makes of another (Damerau)."""
    if len(term) < _SHORTEST_TYPO:
        return set()
    letters = "abcdefghijklmnopqrstuvwxyz"
    splits = [(term[:at], term[at:]) for at in range(len(term) + 1)]
    made = {left + right[1:] for left, right in splits if right}
    made |= {left + right[1] + right[0] + right[2:] for left, right in splits if len(right) > 1}
    made |= {left + letter + right[1:] for left, right in splits if right for letter in letters}
    made |= {left + letter + right for left, right in splits for letter in letters}
    return made


def _fields(spec: OperationSpec) -> Iterator[tuple[str, float]]:
    yield spec.id, _ID
    if spec.title:
        yield spec.title, _TITLE
    if spec.description:
        head = _HEAD_OF.match(spec.description)
        at = head.end() if head else 0
        yield spec.description[:at], _DESCRIPTION
        yield spec.description[at:], _BEYOND
    for tag in spec.tags:
        yield tag, _TAG


def _best(scores: dict[int, float], limit: int) -> list[int]:
    if not scores:
        return []
    least = heapq.nlargest(limit, scores.values())[-1]
    above = [document for document, score in scores.items() if score > least]
    above.sort(key=lambda document: (-scores[document], document))
    level = (document for document, score in scores.items() if score == least)
    return above + heapq.nsmallest(limit - len(above), level)
