-- What makes an event's identity unique among all ledgers, and which life of this ledger it is.
select m.ledger_id, m.epoch
from daybook.meta as m
