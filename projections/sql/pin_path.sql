-- Pins the search_path until the transaction ends, and says what it was. By itself: a prepared statement that names tables is
-- planned anew whenever the search_path is another than the last time.
select
    current_setting('search_path') as previous,
    set_config('search_path', $1::text, true) as path
