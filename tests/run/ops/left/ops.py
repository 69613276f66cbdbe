from helpers import SIDE


def side(x):
    from late import LATE

    return SIDE, LATE
