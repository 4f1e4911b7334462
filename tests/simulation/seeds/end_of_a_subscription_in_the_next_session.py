from mcpio.testing.simulation import Act, Mishap, Party, Plan, rerun

acts = (
    Act("hang", after=0.0),
    Act("listen", after=0.0, lasts=3.0),
    Act("keep_listening", after=0.0),
)
rerun(
    Plan(
        seed=47,
        parties=(Party("http", "handshake", keeps=True, lanes=(acts,)),),
        mishaps=(Mishap("kills", at=16.873, on=85, lasts=0.1),),
        delay=0.2,
        splits=0.3,
    )
)
