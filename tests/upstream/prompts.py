"""Twenty things to ask: code, chat, facts, extraction, free writing, other scripts."""

PROMPTS = (
    "Write a Python function that merges two sorted lists without using sorted().",
    "Explain what a hash table is to a ten-year-old.",
    "Write a haiku about memory bandwidth.",
    "List five ways to save electricity at home, each in one sentence.",
    "Extract name, city and year as JSON: Ada Lovelace was born in London in 1815.",
    "What is the difference between TCP and UDP?",
    "Translate to French: The library opens at nine and closes at six.",
    "Summarise in one sentence: The bridge was closed for repairs in March, reopened in June, and closed again in August after a storm.",
    "Tell me a short story about a lighthouse keeper who collects clocks.",
    "def quicksort(items):\n    if len(items) <= 1:\n        return items\n",
    "Why is the sky blue, and why is the sunset red?",
    "Give me a recipe for lentil soup with exact quantities.",
    "Write an SQL query that finds the three customers with the largest total of orders.",
    "Compare cats and dogs as companions for a small flat.",
    "Schreibe zwei Sätze über den Herbst in den Bergen.",
    "日本の首都について二つの文で説明してください。",
    "Convert 98.6 degrees Fahrenheit to Celsius and show each step.",
    "Write a polite e-mail that asks a neighbour to keep the music down after ten.",
    "What are the first twelve prime numbers? Explain how you know that 91 is not one of them.",
    "Once upon a time, in a village between two rivers, there lived a baker who never slept. 🥖",
)
