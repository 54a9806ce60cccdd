//! A wholesaler's orders in the manner of TPC-C: its nine tables, its five transactions and their
//! shares, one warehouse of a tenth of the size, one terminal, no time to think.
//!
//! Invariants:
//! - The same seed does the same work in every mode.
//! - At the end the sums and numbers that TPC-C's conditions 1 to 4 name agree.

use std::io::{self, Error};
use std::time::{Duration, Instant};

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rusqlite::{Connection, OptionalExtension, params};

const DISTRICTS: i64 = 10;
const CUSTOMERS: i64 = 300;
const ITEMS: i64 = 10_000;
/// A new order in a hundred names an item that does not exist, and is rolled back.
const WRONG_ITEMS_PCT: u32 = 1;

const SCHEMA: &str = "
    CREATE TABLE warehouse (w_id INTEGER PRIMARY KEY, w_name TEXT, w_tax REAL, w_ytd INTEGER);
    CREATE TABLE district (d_id INTEGER PRIMARY KEY, d_name TEXT, d_tax REAL, d_ytd INTEGER,
        d_next_o_id INTEGER);
    CREATE TABLE customer (c_d_id INTEGER, c_id INTEGER, c_last TEXT, c_balance INTEGER,
        c_payments INTEGER, c_data TEXT, PRIMARY KEY (c_d_id, c_id)) WITHOUT ROWID;
    CREATE INDEX customer_names ON customer (c_d_id, c_last);
    CREATE TABLE history (h_d_id INTEGER, h_c_id INTEGER, h_amount INTEGER, h_data TEXT);
    CREATE TABLE item (i_id INTEGER PRIMARY KEY, i_name TEXT, i_price INTEGER, i_data TEXT);
    CREATE TABLE stock (s_i_id INTEGER PRIMARY KEY, s_quantity INTEGER, s_ytd INTEGER,
        s_dist TEXT, s_data TEXT);
    CREATE TABLE orders (o_d_id INTEGER, o_id INTEGER, o_c_id INTEGER, o_carrier INTEGER,
        o_lines INTEGER, PRIMARY KEY (o_d_id, o_id)) WITHOUT ROWID;
    CREATE INDEX orders_of_customers ON orders (o_d_id, o_c_id, o_id);
    CREATE TABLE new_order (n_d_id INTEGER, n_o_id INTEGER, PRIMARY KEY (n_d_id, n_o_id))
        WITHOUT ROWID;
    CREATE TABLE order_line (l_d_id INTEGER, l_o_id INTEGER, l_number INTEGER, l_i_id INTEGER,
        l_quantity INTEGER, l_amount INTEGER, l_delivered INTEGER, l_dist TEXT,
        PRIMARY KEY (l_d_id, l_o_id, l_number)) WITHOUT ROWID;
";

/// Syllables of customers' last names.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];

/// Fills the tables, does so many transactions and checks what they left; `each` gets what every
/// one took.
pub(super) fn run(
    connection: &Connection,
    count: usize,
    each: &mut dyn FnMut(Duration),
) -> io::Result<()> {
    connection.set_prepared_statement_cache_capacity(64);
    fill(connection).map_err(Error::other)?;
    let mut terminal = Terminal { connection, random: SmallRng::seed_from_u64(count as u64) };
    for _ in 0..count {
        let started = Instant::now();
        terminal.transact().map_err(Error::other)?;
        each(started.elapsed());
    }
    verify(connection)
}

fn last_name(number: i64) -> String {
    [number / 100, number / 10, number].map(|digit| SYLLABLES[(digit % 10) as usize]).concat()
}

fn fill(connection: &Connection) -> rusqlite::Result<()> {
    let mut random = SmallRng::seed_from_u64(0);
    let mut text = |length: usize| -> String {
        (0..length).map(|_| char::from(random.random_range(b'a'..=b'z'))).collect()
    };
    let transaction = connection.unchecked_transaction()?;
    transaction.execute_batch(SCHEMA)?;
    transaction.execute("INSERT INTO warehouse VALUES (1, ?1, 0.1, 0)", [text(10)])?;
    let mut item = transaction.prepare("INSERT INTO item VALUES (?1, ?2, ?3, ?4)")?;
    let mut stock = transaction.prepare("INSERT INTO stock VALUES (?1, 50, 0, ?2, ?3)")?;
    for number in 1..=ITEMS {
        item.execute(params![number, text(20), 100 + number % 9900, text(38)])?;
        stock.execute(params![number, text(240), text(38)])?;
    }
    let mut customer = transaction.prepare("INSERT INTO customer VALUES (?1, ?2, ?3, 0, 0, ?4)")?;
    for district in 1..=DISTRICTS {
        transaction.execute(
            "INSERT INTO district VALUES (?1, ?2, 0.1, 0, 1)",
            params![district, text(8)],
        )?;
        for number in 1..=CUSTOMERS {
            customer.execute(params![district, number, last_name(number - 1), text(450)])?;
        }
    }
    drop((item, stock, customer));
    transaction.commit()
}

struct Terminal<'a> {
    connection: &'a Connection,
    random: SmallRng,
}

impl Terminal<'_> {
    fn transact(&mut self) -> rusqlite::Result<()> {
        match self.random.random_range(0..100) {
            0..45 => self.new_order(),
            45..88 => self.payment(),
            88..92 => self.order_status(),
            92..96 => self.deliver(),
            _ => self.stock_level(),
        }
    }

    fn district(&mut self) -> i64 {
        self.random.random_range(1..=DISTRICTS)
    }

    /// Some come more often than others, as TPC-C's `NURand` has it.
    fn customer(&mut self) -> i64 {
        let (one, other) =
            (self.random.random_range(0..=255), self.random.random_range(0..CUSTOMERS));
        (one | other) % CUSTOMERS + 1
    }

    fn item(&mut self) -> i64 {
        let (one, other) = (self.random.random_range(0..=8191), self.random.random_range(0..ITEMS));
        (one | other) % ITEMS + 1
    }

    fn new_order(&mut self) -> rusqlite::Result<()> {
        let (district, customer) = (self.district(), self.customer());
        let lines: i64 = self.random.random_range(5..=15);
        let is_wrong = self.random.random_range(0..100) < WRONG_ITEMS_PCT;
        let items: Vec<i64> = (1..=lines)
            .map(|line| if is_wrong && line == lines { ITEMS + 1 } else { self.item() })
            .collect();
        let transaction = self.connection.unchecked_transaction()?;
        let order: i64 = transaction
            .prepare_cached(
                "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_id = ?1
                 RETURNING d_next_o_id - 1",
            )?
            .query_row([district], |row| row.get(0))?;
        transaction
            .prepare_cached("INSERT INTO orders VALUES (?1, ?2, ?3, NULL, ?4)")?
            .execute([district, order, customer, lines])?;
        transaction
            .prepare_cached("INSERT INTO new_order VALUES (?1, ?2)")?
            .execute([district, order])?;
        for (line, item) in items.into_iter().enumerate() {
            let price: Option<i64> = transaction
                .prepare_cached("SELECT i_price FROM item WHERE i_id = ?1")?
                .query_row([item], |row| row.get(0))
                .optional()?;
            let Some(price) = price else {
                return transaction.rollback();
            };
            let quantity: i64 = self.random.random_range(1..=10);
            let place: String = transaction
                .prepare_cached(
                    "UPDATE stock SET s_ytd = s_ytd + ?2, s_quantity = s_quantity - ?2 +
                        CASE WHEN s_quantity >= ?2 + 10 THEN 0 ELSE 91 END
                     WHERE s_i_id = ?1 RETURNING substr(s_dist, ?3 * 24 - 23, 24)",
                )?
                .query_row([item, quantity, district], |row| row.get(0))?;
            transaction
                .prepare_cached("INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, ?7)")?
                .execute(params![
                    district,
                    order,
                    line as i64 + 1,
                    item,
                    quantity,
                    quantity * price,
                    place
                ])?;
        }
        transaction.commit()
    }

    fn payment(&mut self) -> rusqlite::Result<()> {
        let (district, customer) = (self.district(), self.customer());
        let amount: i64 = self.random.random_range(100..=500_000);
        let by_name = self.random.random_range(0..100) < 60;
        let transaction = self.connection.unchecked_transaction()?;
        transaction.prepare_cached("UPDATE warehouse SET w_ytd = w_ytd + ?1")?.execute([amount])?;
        transaction
            .prepare_cached("UPDATE district SET d_ytd = d_ytd + ?2 WHERE d_id = ?1")?
            .execute([district, amount])?;
        let customer: i64 = if by_name {
            transaction
                .prepare_cached(
                    "SELECT c_id FROM customer WHERE c_d_id = ?1 AND c_last = ?2 LIMIT 1",
                )?
                .query_row(params![district, last_name(customer - 1)], |row| row.get(0))?
        } else {
            customer
        };
        transaction
            .prepare_cached(
                "UPDATE customer SET c_balance = c_balance - ?3, c_payments = c_payments + 1
                 WHERE c_d_id = ?1 AND c_id = ?2",
            )?
            .execute([district, customer, amount])?;
        transaction
            .prepare_cached("INSERT INTO history VALUES (?1, ?2, ?3, 'payment at the counter')")?
            .execute([district, customer, amount])?;
        transaction.commit()
    }

    fn order_status(&mut self) -> rusqlite::Result<()> {
        let (district, customer) = (self.district(), self.customer());
        let transaction = self.connection.unchecked_transaction()?;
        let last: Option<i64> = transaction
            .prepare_cached("SELECT max(o_id) FROM orders WHERE o_d_id = ?1 AND o_c_id = ?2")?
            .query_row([district, customer], |row| row.get(0))?;
        transaction
            .prepare_cached(
                "SELECT total(l_amount) FROM order_line WHERE l_d_id = ?1 AND l_o_id = ?2",
            )?
            .query_row(params![district, last], |_| Ok(()))?;
        transaction.commit()
    }

    fn deliver(&mut self) -> rusqlite::Result<()> {
        let carrier: i64 = self.random.random_range(1..=10);
        let transaction = self.connection.unchecked_transaction()?;
        for district in 1..=DISTRICTS {
            let oldest: Option<i64> = transaction
                .prepare_cached("SELECT min(n_o_id) FROM new_order WHERE n_d_id = ?1")?
                .query_row([district], |row| row.get(0))?;
            let Some(order) = oldest else { continue };
            transaction
                .prepare_cached("DELETE FROM new_order WHERE n_d_id = ?1 AND n_o_id = ?2")?
                .execute([district, order])?;
            let customer: i64 = transaction
                .prepare_cached(
                    "UPDATE orders SET o_carrier = ?3 WHERE o_d_id = ?1 AND o_id = ?2
                     RETURNING o_c_id",
                )?
                .query_row([district, order, carrier], |row| row.get(0))?;
            transaction
                .prepare_cached(
                    "UPDATE order_line SET l_delivered = 1 WHERE l_d_id = ?1 AND l_o_id = ?2",
                )?
                .execute([district, order])?;
            transaction
                .prepare_cached(
                    "UPDATE customer SET c_balance = c_balance + (SELECT sum(l_amount)
                        FROM order_line WHERE l_d_id = ?1 AND l_o_id = ?2)
                     WHERE c_d_id = ?1 AND c_id = ?3",
                )?
                .execute([district, order, customer])?;
        }
        transaction.commit()
    }

    fn stock_level(&mut self) -> rusqlite::Result<()> {
        let (district, level) = (self.district(), self.random.random_range(10..=20));
        let transaction = self.connection.unchecked_transaction()?;
        transaction
            .prepare_cached(
                "SELECT count(DISTINCT l_i_id) FROM order_line JOIN stock ON s_i_id = l_i_id
                 WHERE l_d_id = ?1 AND s_quantity < ?2 AND l_o_id >=
                    (SELECT d_next_o_id - 20 FROM district WHERE d_id = ?1)",
            )?
            .query_row([district, level], |_| Ok(()))?;
        transaction.commit()
    }
}

/// TPC-C's conditions 1 (money), 2 (numbers of orders), 3 (orders to be delivered are without a gap)
/// and 4 (the number of lines).
fn verify(connection: &Connection) -> io::Result<()> {
    for (condition, query) in [
        (
            "the districts' money is the warehouse's",
            "SELECT (SELECT sum(d_ytd) FROM district) = w_ytd
            AND w_ytd = (SELECT ifnull(sum(h_amount), 0) FROM history) FROM warehouse",
        ),
        (
            "orders are numbered in sequence",
            "SELECT min(d_next_o_id - 1 = (SELECT count(*) FROM orders
            WHERE o_d_id = d_id) AND d_next_o_id - 1 = (SELECT ifnull(max(o_id), 0) FROM orders
            WHERE o_d_id = d_id)) FROM district",
        ),
        (
            "new orders are the last ones",
            "SELECT ifnull(min(span = count), 1) FROM
            (SELECT max(n_o_id) - min(n_o_id) + 1 AS span, count(*) AS count FROM new_order
            GROUP BY n_d_id)",
        ),
        (
            "each order has its lines",
            "SELECT (SELECT ifnull(sum(o_lines), 0) FROM orders) =
            (SELECT count(*) FROM order_line)",
        ),
    ] {
        let holds: bool =
            connection.query_row(query, [], |row| row.get(0)).map_err(Error::other)?;
        if !holds {
            return Err(Error::other(format!("the tables do not agree: {condition} is not so")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The five transactions leave tables that agree, and one change to them is seen.
    #[test]
    fn transactions_leave_tables_that_agree() {
        let connection = Connection::open_in_memory().unwrap();
        let mut done = 0;
        run(&connection, 600, &mut |_| done += 1).unwrap();
        assert_eq!(done, 600);
        for damage in [
            "UPDATE district SET d_ytd = d_ytd + 1 WHERE d_id = 3",
            "DELETE FROM orders WHERE o_d_id = 2 AND o_id = 1",
            "DELETE FROM new_order WHERE n_o_id = (SELECT max(n_o_id) - 1 FROM new_order
                WHERE n_d_id = 1) AND n_d_id = 1",
            "DELETE FROM order_line WHERE l_d_id = 1 AND l_number = 1 AND l_o_id = 1",
        ] {
            let transaction = connection.unchecked_transaction().unwrap();
            assert_eq!(transaction.execute(damage, []).unwrap(), 1, "{damage}");
            assert!(verify(&connection).is_err(), "{damage}");
            transaction.rollback().unwrap();
        }
        verify(&connection).unwrap();
    }
}
