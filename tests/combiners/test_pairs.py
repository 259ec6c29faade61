from vcmc.combiners.pairs import MIN_INNER_DRAWS, multiply_pairs


def test_every_node_is_multiplied_once():
    assert multiply_pairs([2, 3, 5, 7, 11], 10, float, lambda a, b, _: a * b) == 2310


def test_the_widest_is_paired_with_the_narrowest():
    pairs = []

    def product(first, second, count):
        pairs.append((first, second))
        return first + second

    multiply_pairs([4, 1, 3, 2], 10, float, product)
    assert pairs[:2] == [(1, 4), (2, 3)]


def test_only_the_last_product_has_few_draws():
    counts = []

    def product(first, second, count):
        counts.append(count)
        return first

    multiply_pairs([1, 2, 3, 4], 10, float, product)
    assert counts == [MIN_INNER_DRAWS, MIN_INNER_DRAWS, 10]


def test_a_single_node_is_the_product():
    assert multiply_pairs(["one"], 10, len, lambda *_: "other") == "one"
