-- The shop's own tables: nothing of Daybook's.
create table orders (
    number       text        primary key,
    customer     text        not null,
    sku          text        not null,
    amount_cents integer     not null,
    currency     text        not null,
    job_id       uuid        not null,
    placed_at    timestamptz not null default now()
);

create table payments (
    payment_id   text    primary key,
    order_number text    not null,
    type         text    not null,
    amount_cents integer not null,
    job_id       uuid    not null
);

create table stock (
    sku       text    primary key,
    available integer not null,
    constraint stock_not_negative check (available >= 0)
);

insert into stock (sku, available)
values ('lamp', 5), ('desk', 5), ('chair', 0);
