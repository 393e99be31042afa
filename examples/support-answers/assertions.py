"""Who is answered, and who gets a person."""


def sorted_out(outputs, expected):
    sent = [name.removesuffix(".txt") for name in outputs["sent"].split()]
    handed = [line.rpartition(" ")[0] for line in outputs["for_people"]]
    return {"sent": sent, "handed": handed} == expected, f"sent {sent}, handed over {handed}"
