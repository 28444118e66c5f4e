"""Code completion: the head of a function and its docstring; the body is run against checks in the sandbox."""

from __future__ import annotations

from collections.abc import Callable

from swiftsure.verify.tasks.items import Completion
from swiftsure.verify.tasks.sandbox import run_program

MAX_TOKENS = 80
STOP = ("\ndef ", "\nclass ", "\nif ", "\nprint", "\n#", "\nassert", "\n@", "\n```", "\nfor ", "\n>>>")

PROBLEMS: tuple[tuple[str, str, str, tuple[str, ...]], ...] = (
    ("add", "a, b", "Return the sum of a and b.", ("add(2, 3) == 5", "add(-1, 1) == 0")),
    ("square", "x", "Return x multiplied by itself.", ("square(4) == 16", "square(-3) == 9")),
    ("is_even", "n", "Return True if n is even, else False.", ("is_even(4)", "not is_even(7)", "is_even(0)")),
    ("largest", "numbers", "Return the largest number of a list.", ("largest([1, 9, 3]) == 9", "largest([-5, -2]) == -2")),
    ("reverse", "text", "Return the text with its characters in reverse order.", ("reverse('abc') == 'cba'", "reverse('') == ''")),
    ("count_vowels", "text", "Return the number of vowels (a, e, i, o, u) in the text.", ("count_vowels('banana') == 3",)),
    ("factorial", "n", "Return the factorial of n. factorial(0) is 1.", ("factorial(5) == 120", "factorial(0) == 1")),
    ("fibonacci", "n", "Return the n-th Fibonacci number; fibonacci(0) is 0.", ("fibonacci(10) == 55", "fibonacci(1) == 1")),
    ("is_palindrome", "text", "Return True if the text reads the same backwards.", ("is_palindrome('level')", "not is_palindrome('ab')")),
    ("average", "numbers", "Return the mean of a list of numbers.", ("average([1, 2, 3]) == 2", "average([4]) == 4")),
    ("words", "text", "Return the list of words of the text, split at blanks.", ("words('a bc d') == ['a', 'bc', 'd']",)),
    ("unique", "items", "Return the items without duplicates, in their order.", ("unique([1, 2, 1, 3]) == [1, 2, 3]",)),
    ("absolute", "x", "Return the absolute value of x.", ("absolute(-4) == 4", "absolute(3) == 3")),
    ("total", "numbers", "Return the sum of all numbers of a list.", ("total([1, 2, 3]) == 6", "total([]) == 0")),
    ("last", "items", "Return the last item of a list.", ("last([1, 2, 3]) == 3", "last(['a']) == 'a'")),
    ("double_all", "numbers", "Return a list in which every number is doubled.", ("double_all([1, 2]) == [2, 4]",)),
    ("only_positive", "numbers", "Return the numbers that are greater than zero.", ("only_positive([1, -2, 3]) == [1, 3]",)),
    ("celsius", "fahrenheit", "Convert a temperature from Fahrenheit to Celsius.", ("abs(celsius(212) - 100) < 1e-9", "celsius(32) == 0")),
    ("gcd", "a, b", "Return the greatest common divisor of a and b.", ("gcd(12, 18) == 6", "gcd(7, 5) == 1")),
    ("is_prime", "n", "Return True if n is a prime number.", ("is_prime(7)", "not is_prime(9)", "not is_prime(1)", "is_prime(2)")),
    ("join", "parts", "Return the parts joined by commas.", ("join(['a', 'b']) == 'a,b'",)),
    ("count", "items, wanted", "Return how often wanted occurs in items.", ("count([1, 2, 1], 1) == 2", "count([], 1) == 0")),
    ("index_of", "items, wanted", "Return the index of wanted in items, or -1.", ("index_of([5, 6], 6) == 1", "index_of([5], 7) == -1")),
    ("swap", "pair", "Return the pair with its two values exchanged.", ("tuple(swap((1, 2))) == (2, 1)",)),
    ("flatten", "lists", "Return one list with the items of all lists.", ("flatten([[1], [2, 3]]) == [1, 2, 3]",)),
    ("digits", "n", "Return the sum of the decimal digits of n.", ("digits(123) == 6", "digits(0) == 0")),
    ("power", "base, exponent", "Return base raised to a whole exponent of at least 0.", ("power(2, 5) == 32", "power(3, 0) == 1")),
    ("clamp", "x, low, high", "Return x, but at least low and at most high.", ("clamp(5, 0, 3) == 3", "clamp(-1, 0, 3) == 0")),
    ("capitalize", "text", "Return the text with its first letter in upper case.", ("capitalize('abc') == 'Abc'",)),
    ("distance", "a, b", "Return the distance between two numbers.", ("distance(2, 5) == 3", "distance(5, 2) == 3")),
)


def programs() -> tuple[Completion, ...]:
    return tuple(_program(*problem) for problem in PROBLEMS)


def _program(name: str, arguments: str, about: str, checks: tuple[str, ...]) -> Completion:
    head = f'def {name}({arguments}):\n    """{about}"""'  # without a line's end: tokenizers join it with the indent that follows
    prompt = f'def larger(a, b):\n    """Return the larger of two numbers."""\n    return a if a > b else b\n\n\n{head}'
    return Completion(
        id=f"code-{name}", cluster=f"code-{name}", prompt=prompt, max_tokens=MAX_TOKENS, stop=STOP, check=_checker(head, checks)
    )


def _checker(head: str, checks: tuple[str, ...]) -> Callable[[str], float]:
    def check(body: str) -> float:
        source = head + body + "\n\n" + "\n".join(f"assert {check}" for check in checks) + "\n"
        return float(run_program(source).passed)

    return check
