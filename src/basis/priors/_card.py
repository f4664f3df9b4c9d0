"""Stand-in until the card's own file is merged."""

Card = dict
